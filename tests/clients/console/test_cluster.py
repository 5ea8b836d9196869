"""Lists of a cluster that are kept for seconds."""

import asyncio

import pytest

from skylarkmq.clients.console.cluster import ALL, Cluster
from skylarkmq.clients.sdk.base.errors import ClientError, RequestTimeout
from tests.clients.console.fake_cluster import FakeAdmin


class SlowAdmin(FakeAdmin):
    """Returns the list of topics, or fails, when the test releases it."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.reads: list[asyncio.Future[list[str]]] = []

    async def topics(self) -> list[str]:
        self.reads.append(asyncio.get_running_loop().create_future())
        return await self.reads[-1]


@pytest.fixture
def admin() -> SlowAdmin:
    return SlowAdmin()


@pytest.fixture
async def cluster(admin: SlowAdmin) -> Cluster:
    return Cluster(admin)  # type: ignore[arg-type]


async def begun(cluster: Cluster, count: int) -> list[asyncio.Task[list[str]]]:
    """Return calls that wait for the list of topics."""

    async def names() -> list[str]:
        return (await cluster.topics())[ALL]

    calls = [asyncio.create_task(names()) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return calls


async def test_a_failed_read_fails_all_calls_that_wait_for_it(cluster: Cluster, admin: SlowAdmin) -> None:
    """No call waits for the reads of the others one after another; the next call reads again."""
    calls = await begun(cluster, 5)
    admin.reads[0].set_exception(RequestTimeout("no response"))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, ClientError) for result in results] == [True] * 5
    (call,) = await begun(cluster, 1)
    admin.reads[1].set_result(["T"])
    assert (await call, len(admin.reads)) == (["T"], 2)


async def test_a_canceled_call_does_not_cancel_the_read_of_others(cluster: Cluster, admin: SlowAdmin) -> None:
    """A browser that goes away, or a page that takes too long, does not disturb other pages."""
    first, second = await begun(cluster, 2)
    first.cancel()
    await asyncio.wait([first])
    admin.reads[0].set_result(["T"])
    assert (await second, first.cancelled(), len(admin.reads)) == (["T"], True, 1)


async def test_a_read_that_a_change_overtakes_is_not_kept(cluster: Cluster, admin: SlowAdmin) -> None:
    """A topic that was created during a read of the list is in the next list."""
    (before,) = await begun(cluster, 1)
    cluster.changed()
    (after,) = await begun(cluster, 1)
    admin.reads[1].set_result(["T", "new"])
    admin.reads[0].set_result(["T"])
    assert (await before, await after) == (["T"], ["T", "new"])
    (later,) = await begun(cluster, 1)
    assert (await later, len(admin.reads)) == (["T", "new"], 2)
