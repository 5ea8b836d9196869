"""Metadata of a cluster: responses of peers, and the correction of searches by time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.arrow.topic.cluster import Cluster, broker_address, first_stored_at
from skylarkmq.clients.sdk.base.errors import NoRoute
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.protocol.bodies.cluster import ClusterInfo, TopicList
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.cluster import Cluster as Peers
from tests.clients.cluster import running_cluster
from tests.clients.peer import refuse

T = TypeVar("T")


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 10), st.integers(0, 21), st.integers(-5, 90))
def test_the_first_message_at_a_time_is_found_from_any_guess(
    record_starts: list[int], first: int, time_ms: int, guess: int
) -> None:
    """Whatever the broker returns: the nearest offset, the last one, or one that is not in the queue."""
    times = {first + n: sum(record_starts[: n + 1]) // 10 for n in range(len(record_starts))}
    end = first + len(times)

    async def stored_ms(offset: int) -> int:
        return times[offset]

    found = asyncio.run(first_stored_at(stored_ms, time_ms, guess, first, end))
    assert found == next((offset for offset in sorted(times) if times[offset] >= time_ms), end)


def test_a_correct_guess_takes_two_lookups() -> None:
    """The lookups read the message of the guess and the one before it."""
    looked: list[int] = []

    async def stored_ms(offset: int) -> int:
        looked.append(offset)
        return offset

    assert asyncio.run(first_stored_at(stored_ms, 500, 500, 0, 1000)) == 500
    assert looked == [500, 499]


@pytest.fixture
async def running() -> AsyncIterator[Peers]:
    async with running_cluster(2) as peers:
        peers.name_server.on(
            RequestCode.GET_BROKER_CLUSTER_INFO,
            lambda *_: RemotingCommand.response(
                body=ClusterInfo(
                    broker_addr_table={b.name: BrokerData("c", b.name, {0: b.address}) for b in peers.brokers},
                    cluster_addr_table={"c": [b.name for b in peers.brokers]},
                ).encode()
            ),
        )
        listed = TopicList(topic_list=["T", "U", "TBW102", "c", "broker-a", "%RETRY%T"]).encode()
        peers.name_server.on(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, lambda *_: RemotingCommand.response(body=listed)
        )
        yield peers


def options(peers: Peers, **given: str) -> SourceOptions:
    subscribe = {} if {"assign", "subscribePattern"} & given.keys() else {"subscribe": "T"}
    return parse(SOURCE_OPTIONS, {"nameServer": peers.namesrv} | subscribe | given)


async def result_in_thread(made: SourceOptions, operation: Callable[[Cluster], T]) -> T:
    """Return the result of a blocking operation, which runs in a thread."""

    def run() -> T:
        cluster = Cluster(made)
        try:
            return operation(cluster)
        finally:
            cluster.close()

    return await asyncio.to_thread(run)


async def test_queues_by_name_pattern_and_assignment(running: Peers) -> None:
    """Queues of all brokers are found; topics of the system, of clusters and of groups are not selected."""
    running.topics |= {"U": 1, "TBW102": 1, "c": 1, "broker-a": 1, "%RETRY%T": 1}
    a, b = "broker-a", "broker-b"
    named = await result_in_thread(options(running), lambda cluster: cluster.queues())
    assert named == {MessageQueue("T", name, n) for name in (a, b) for n in range(2)}
    meant = await result_in_thread(options(running, subscribePattern=".*"), lambda cluster: cluster.queues())
    assert {queue.topic for queue in meant} == {"T", "U"}
    single = await result_in_thread(
        options(running, assign='{"T":{"broker-b":[1,7]}}'), lambda cluster: cluster.queues()
    )
    assert single == {MessageQueue("T", b, 1)}
    assert await result_in_thread(options(running, subscribe="Nothing"), lambda cluster: cluster.queues()) == set()


async def test_an_unreachable_broker_is_omitted(running: Peers) -> None:
    """The other brokers' results are returned."""
    running.brokers[0].store("T", 0, b"x")
    queues = [MessageQueue("T", broker.name, 0) for broker in running.brokers]
    await running.brokers[1].stop()
    try:
        ends = await result_in_thread(options(running), lambda cluster: cluster.end_offsets(queues))
    finally:
        await running.brokers[1].listen()
    assert ends == {queues[0]: 1}


async def test_a_busy_broker_is_retried(running: Peers) -> None:
    """The number of retries is that of the option; other errors are raised at once."""
    answers = [RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "busy")] * 2
    usual = running.broker.handlers[RequestCode.GET_MAX_OFFSET]
    running.broker.on(RequestCode.GET_MAX_OFFSET, lambda *given: answers.pop() if answers else usual(*given))
    queue = MessageQueue("T", "broker-a", 0)
    assert await result_in_thread(options(running), lambda cluster: cluster.end_offsets([queue])) == {queue: 0}
    assert len(running.broker.requests_of(RequestCode.GET_MAX_OFFSET)) == 3


async def test_a_commit_creates_its_group_by_a_pull(running: Peers) -> None:
    """A missing group is created; a queue whose commit still fails is returned."""
    queue, other = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)
    broker = running.broker
    usual = broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]

    def commit(*given: object) -> object:
        known = broker.requests_of(RequestCode.PULL_MESSAGE)
        return usual(*given) if known else RemotingCommand.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no")  # type: ignore[arg-type]

    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, commit)  # type: ignore[arg-type]
    running.brokers[1].on(RequestCode.UPDATE_CONSUMER_OFFSET, refuse(ResponseCode.NO_PERMISSION))
    failed = await result_in_thread(options(running, groupId="g"), lambda cluster: cluster.commit({queue: 5, other: 6}))
    assert failed == [other]
    assert broker.committed("g", "T") == {0: 5}


async def test_a_broker_address_by_its_name(running: Peers) -> None:
    """The address is the registered one; an unregistered broker is an error."""
    assert await broker_address(options(running), "broker-b") == running.brokers[1].address
    found = await result_in_thread(options(running), lambda cluster: cluster.addresses(["broker-a", "gone"]))
    assert found == {"broker-a": running.broker.address}
    with pytest.raises(NoRoute, match="broker gone is not registered"):
        await broker_address(options(running), "gone")
