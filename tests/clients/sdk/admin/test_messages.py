"""Admin.messages against the broker of this repository, and against scripted responses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from skylarkmq import (
    Admin,
    BrokerError,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.admin.message_tracks import MessageTrack, TrackType
from skylarkmq.clients.sdk.admin.messages import KeyQuery, is_offset_id
from skylarkmq.protocol.codes import ResponseCode
from tests.clients.peer import until
from tests.harness.limits import WAIT_LIMIT_S


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the broker's state is as expected."""
    async with asyncio.timeout(WAIT_LIMIT_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


async def test_a_message_is_found_by_either_id(broker: InProcessBroker) -> None:
    """None if there is no such message; the broker's error if an offset id points to none."""
    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("Ids", queues=1)
        sent = await producer.send(Message("Ids", b"a" * 10_000, tags="t", keys="k"))
        for msg_id in (sent.msg_id, sent.offset_msg_id):
            found = await admin.messages.find("Ids", msg_id)
            assert found is not None
            assert (found.msg_id, found.body) == (sent.msg_id, b"a" * 10_000)
            assert found.sys_flag == 0x300  # the codec stays, as in RocketMQ's clients
        assert await admin.messages.find("Ids", "0" * 32) is None
        assert is_offset_id(sent.offset_msg_id)
        assert not is_offset_id(sent.msg_id)
        with pytest.raises(BrokerError):
            await admin.messages.find("Ids", f"{sent.offset_msg_id[:16]}{123456:016X}")


async def test_messages_of_a_key_are_limited(broker: InProcessBroker) -> None:
    """By number and store time; not by keys of the same hash, unique ids or other clusters."""
    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("Keys", queues=1)
        sent = [await producer.send(Message("Keys", b"%d" % n, keys=["BB", "same"])) for n in range(3)]
        assert [m.body for m in await admin.messages.with_key("Keys", "same")] == [b"0", b"1", b"2"]
        assert len(await admin.messages.with_key("Keys", "same", KeyQuery(limit=2))) == 2
        assert await admin.messages.with_key("Keys", "same", KeyQuery(until_ms=1)) == []
        assert await admin.messages.with_key("Keys", "Aa") == []
        assert await admin.messages.with_key("Keys", sent[0].msg_id) == []
        assert len(await admin.messages.with_key("Keys", "same", KeyQuery(cluster="DefaultCluster"))) == 3
        unique = await admin.messages.with_unique_key("Keys", sent[1].msg_id)
        assert [m.body for m in unique] == [b"1"]


async def test_a_queue_is_read_by_offset_and_tag(broker: InProcessBroker) -> None:
    """With the bounds of the queue; tags of the same hash do not match; a pull at the end finds nothing."""
    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("Queue", queues=1)
        for tag in ("Aa", "BB", "CC"):
            await producer.send(Message("Queue", tag.encode(), tags=tag))
        queue = MessageQueue("Queue", "broker-a", 0)
        assert await admin.messages.bounds(queue) == (0, 3)
        assert await admin.messages.bounds(queue, 0, 2**62) == (0, 3)
        pulled = await admin.messages.pull(queue, 0, tags="Aa || CC")
        assert ([m.body for m in pulled.messages], pulled.next_offset) == ([b"Aa", b"CC"], 3)
        assert (pulled.min_offset, pulled.max_offset) == (0, 3)
        assert (await admin.messages.pull(queue, 3)).code == ResponseCode.PULL_NOT_FOUND
        assert (await admin.messages.pull(queue, 9)).code == ResponseCode.PULL_OFFSET_MOVED
        units = await admin.messages.queue_units(broker.address, queue, 1, 2)
        assert [unit.tags_code for unit in units.queue_data or ()] == [2112, 2144]
        assert (units.min_queue_index, units.max_queue_index) == (0, 3)


async def test_tracks_are_the_state_of_a_message_in_each_group(broker: InProcessBroker) -> None:
    """Consumed, filtered, not yet, and groups without members; a member handles a message on request."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    def member(group: str) -> PushConsumer:
        settings = ConsumerSettings(commit_interval_s=0.1)
        first = ConsumeFrom.FIRST
        return PushConsumer(group, namesrv=broker.namesrv, handler=handler, settings=settings, consume_from=first)

    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("Tracks", queues=1)
        await producer.send(Message("Tracks", b"old", tags="wanted"))
        async with (
            member("all") as everything,
            member("some") as some,
        ):
            await everything.subscribe("Tracks")
            await some.subscribe("Tracks", "wanted")
            await producer.send(Message("Tracks", b"new", tags="other"))
            await producer.send(Message("Tracks", b"newest", tags="wanted"))
            await until(lambda: len(seen) == 5)
            queue = MessageQueue("Tracks", "broker-a", 0)
            message = (await admin.messages.pull(queue, 1, 1)).messages[0]
            wanted = {("all", TrackType.CONSUMED), ("some", TrackType.CONSUMED_BUT_FILTERED)}

            async def has_consumed() -> bool:
                return {(track.group, track.track_type) for track in await admin.messages.tracks(message)} == wanted

            await eventually(has_consumed)
            result = await admin.messages.consume_directly("all", everything.client.client_id, message)
            assert (result.consume_result, seen[-1]) == ("CR_SUCCESS", b"new")
            await admin.set_offset("all", queue, 1)
            assert MessageTrack("all", TrackType.NOT_CONSUME_YET) in await admin.messages.tracks(message)
        gone = await admin.messages.tracks(message)
        assert {track.track_type for track in gone} == {TrackType.NOT_ONLINE}
        assert gone[0].reason is not None
        assert gone[0].reason.startswith("CODE:206 DESC:the consumer group[")


async def test_the_trace_of_a_message_is_read(broker: InProcessBroker) -> None:
    """A trace has the send and the handler calls once their records are indexed."""

    async def handler(_: MessageExt) -> None:
        handled.set()

    handled = asyncio.Event()
    async with Admin(namesrv=broker.namesrv) as admin:
        await admin.create_topic("Traced", queues=1)
        async with (
            Producer("p", namesrv=broker.namesrv, trace=True) as producer,
            PushConsumer("traced", namesrv=broker.namesrv, handler=handler, topics="Traced", trace=True) as consumer,
        ):
            await consumer.subscribe("Traced")
            sent = await producer.send(Message("Traced", b"x"))
            await handled.wait()

        async def is_indexed() -> bool:
            return len(await admin.messages.trace(sent.msg_id)) == 3

        await eventually(is_indexed)
        found = await admin.messages.trace(sent.msg_id)
        assert [(event.kind, event.group) for event in sorted(found, key=lambda event: event.kind)] == [
            ("Pub", "p"),
            ("SubAfter", "traced"),
            ("SubBefore", "traced"),
        ]
        assert {event.client_host for event in found} == {"127.0.0.1"}
