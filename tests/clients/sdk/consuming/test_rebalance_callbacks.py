"""Callbacks about queues that a member gets and loses."""

from collections.abc import Sequence

import pytest

from skylarkmq import ConsumeFrom, ConsumerSettings, MessageExt, MessageQueue, PullConsumer, PushConsumer, Topics
from skylarkmq.clients.sdk.consuming.group_member import Sql92, expressions_of
from skylarkmq.protocol.codes import RequestCode
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import until

FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=3600, handover_pause_s=0.02, rebalance_interval_s=0.05)


class Recorder:
    """Callbacks that record their calls."""

    def __init__(self, cluster: Cluster) -> None:
        self.calls: list[tuple[str, tuple[int, ...], dict[int, int]]] = []
        self._cluster = cluster

    async def assigned(self, queues: Sequence[MessageQueue]) -> None:
        self._record("assigned", queues)

    def revoked(self, queues: Sequence[MessageQueue]) -> None:
        self._record("revoked", queues)

    def _record(self, name: str, queues: Sequence[MessageQueue]) -> None:
        assert {queue.topic for queue in queues} == {"T"}
        committed = self._cluster.broker.committed("g", "T")
        self.calls.append((name, tuple(queue.queue_id for queue in queues), committed))

    @property
    def names(self) -> list[tuple[str, tuple[int, ...]]]:
        return [call[:2] for call in self.calls]


def push(cluster: Cluster, recorder: Recorder, **options: object) -> PushConsumer:
    async def handle(message: MessageExt) -> None:
        """Acknowledge."""

    callbacks = {"on_assigned": recorder.assigned, "on_revoked": recorder.revoked}
    options = (
        callbacks | {"handler": handle, "topics": "T", "consume_from": ConsumeFrom.FIRST, "settings": FAST} | options
    )
    return PushConsumer("g", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]  # shorthand of a test


@pytest.mark.parametrize("orderly", [False, True])
async def test_members_are_called_when_queues_change_hands(orderly: bool) -> None:
    """With the queues that come and go; at the stop with all that are left."""
    async with running_cluster() as cluster:
        one, two = Recorder(cluster), Recorder(cluster)
        async with push(cluster, one, orderly=orderly) as first:
            await until(lambda: one.names == [("assigned", (0, 1))])
            async with push(cluster, two, orderly=orderly) as second:
                await until(lambda: len(second.assignment) == 1)
                (taken,) = (queue.queue_id for queue in second.assignment)
                await until(lambda: two.names == [("assigned", (taken,))])
                assert one.names[1:] == [("revoked", (taken,))]
            await until(lambda: len(first.assignment) == 2)
            assert two.names[1:] == [("revoked", (taken,))]
            await until(lambda: one.names[2:] == [("assigned", (taken,))])
        assert one.names[3:] == [("revoked", (0, 1))]


async def test_offsets_are_committed_after_the_callback() -> None:
    """An application can finish its work on the queue first."""
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, b"x")
        recorder = Recorder(cluster)
        async with push(cluster, recorder) as consumer:
            await until(lambda: consumer.statistics().handled == 1)
            await consumer.unsubscribe("T")
        assert [call for call in recorder.calls if call[0] == "revoked"] == [("revoked", (0,), {})]
        assert cluster.broker.committed("g", "T") == {0: 1}


async def test_no_message_is_pulled_before_the_callback_has_sought() -> None:
    """`seek` inside of `on_assigned` decides about the first pull."""
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(5):
            cluster.broker.store("T", 0, b"%d" % n)

        async def assigned(queues: Sequence[MessageQueue]) -> None:
            for queue in queues:
                await consumer.seek_to_begin(queue)
                consumer.seek(queue, 3)

        consumer = PullConsumer("g", namesrv=cluster.namesrv, topics=["T"], on_assigned=assigned, settings=FAST)
        async with consumer:
            assert [message.body for message in await consumer.poll(timeout_s=10)] == [b"3", b"4"]
        offsets = {pull.ext_fields()["queueOffset"] for pull in cluster.broker.requests_of(RequestCode.PULL_MESSAGE)}
        assert offsets <= {"3", "5"}


async def test_a_callback_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The queue is read all the same."""

    def failing(queues: Sequence[MessageQueue]) -> None:
        raise ValueError("not mine")

    async with running_cluster() as cluster:
        cluster.broker.store("T", 0, b"x")
        recorder = Recorder(cluster)
        async with push(cluster, recorder, on_assigned=failing) as consumer:
            await until(lambda: consumer.statistics().handled == 1)
    assert "ValueError: not mine" in caplog.text


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (None, {}),
        ("T", {"T": "*"}),
        (["T", "U"], {"T": "*", "U": "*"}),
        ({"T": "a || b", "U": Sql92("n > 5")}, {"T": "a || b", "U": Sql92("n > 5")}),
    ],
)
def test_topics_have_expressions(topics: Topics | None, expected: dict[str, object]) -> None:
    """A name, names, or names with tags or SQL expressions."""
    assert expressions_of(topics) == expected
