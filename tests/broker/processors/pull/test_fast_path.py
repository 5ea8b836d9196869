"""Fast-path pulls: the same responses and counters as for other pulls, and the conditions of the fast path."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.processors.pull import fast_path
from skylarkmq.broker.processors.pull.fast_path import BACKLOG_FACTOR
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.store.read import queue_reads
from skylarkmq.broker.store.read.queue_reads import ReadAhead
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import PullSysFlag
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.msgpack_header import encode_positional
from skylarkmq.protocol.record import Record, iterate
from skylarkmq.protocol.serialize import encode_command
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat, pull
from tests.harness.peer import Peer

QUEUES = 3
COUNT = 100  # messages per queue
WANTED = 7
SIZES = {"mapped_file_size_commit_log": 20_000, "mapped_file_size_consume_queue": 1_400}


def fill(parts: BrokerParts) -> None:
    """Fill the queues with messages, over several segments of the log and of each queue."""
    for number in range(COUNT):
        for queue_id in range(QUEUES):
            parts.put(b"%d" % number, queue_id=queue_id, tag="ab"[number % 2])


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path, **SIZES) as it:
        fill(it)
        yield it


def fast_path_pulls(parts: BrokerParts) -> int:
    """Return the number of pulls served by the fast path."""
    return parts.pulls._fast_path.found


def bodies(response: RemotingCommand) -> list[int]:
    return [int(bytes(it.body)) for it in iterate(memoryview(response.body)) if isinstance(it, Record)]


def frame_of(command: RemotingCommand) -> bytes:
    """Encode as clients do: those that use MessagePack encode fields by position."""
    if command.dialect == MSGPACK:
        return encode_frame(MSGPACK, encode_positional(command, command.header(PullMessageHeader)))
    return encode_command(command)


def catch_up(peer: Peer, dialect: int, **fields: Any) -> list[RemotingCommand]:
    """Return the responses to a consumer that reads every queue to its end, in parallel."""
    offsets = dict.fromkeys(range(QUEUES), 0)
    responses: list[RemotingCommand] = []
    while offsets:
        asked = [
            pull(**{"max_msg_nums": WANTED, "queue_id": queue_id, "queue_offset": at} | fields)
            for queue_id, at in offsets.items()
        ]
        for opaque, command in enumerate(asked, 1):
            command.dialect, command.opaque = dialect, opaque
        peer.received.clear()
        peer.send_bytes(b"".join(map(frame_of, asked)))
        for command, queue_id, response in zip(asked, list(offsets), peer.received, strict=True):
            assert response.opaque == command.opaque
            offsets[queue_id] = int(response.ext_fields()["nextBeginOffset"])
            if response.code:
                del offsets[queue_id]
        responses += peer.received
    return responses


def content(response: RemotingCommand) -> tuple[object, ...]:
    return response.code, response.remark, response.flag, response.version, response.ext_fields(), bytes(response.body)


def counters(parts: BrokerParts) -> tuple[object, ...]:
    """Return every counter of pulls."""
    queues = range(QUEUES)
    return (
        msgspec.structs.replace(parts.pulls.statistics(), longest_get_ms=0),
        [parts.offsets.pulled(GROUP, TOPIC, queue_id) for queue_id in queues],
        [parts.offsets.committed(GROUP, TOPIC, queue_id) for queue_id in queues],
        [parts.pulls.fall_behind.of(GROUP, TOPIC, queue_id) for queue_id in queues],
        parts.pulls.deliveries.table(),
        {outcome: row.count for outcome, row in parts.dispatcher.latencies.rows.items()},
    )


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ, MSGPACK])
@pytest.mark.parametrize("most_bytes", [1 << 18, 500])
@pytest.mark.parametrize("is_registered", [False, True])
async def test_the_fast_path_gives_the_same_responses_and_counters(
    tmp_path: Path, dialect: int, most_bytes: int, is_registered: bool
) -> None:
    """A consumer with a backlog gets the same as if the PullProcessor served each pull."""
    flags = PullSysFlag.COMMIT_OFFSET | (0 if is_registered else PullSysFlag.SUBSCRIPTION)
    seen = []
    for is_plain in (True, False):
        settings = SIZES | {"max_transfer_bytes_on_message_in_memory": most_bytes}
        with broker_parts(tmp_path / str(is_plain), **settings) as parts:
            if not is_plain:
                parts.dispatcher._runs.clear()
            fill(parts)
            peer = parts.peer()
            peer.call(heartbeat(consumer(subscribe(TOPIC, "*", 1))))
            parts.dispatcher.latencies.rows.clear()
            responses = catch_up(peer, dialect, sys_flag=flags, commit_offset=5)
            seen.append(([content(response) for response in responses], counters(parts)))
            assert bool(fast_path_pulls(parts)) == (is_plain and dialect != ROCKETMQ)
            assert sorted(body for response in responses for body in bodies(response)) == sorted(
                [*range(COUNT)] * QUEUES
            )
    assert seen[0] == seen[1]


async def test_the_fast_path_serves_consumers_with_a_backlog(parts: BrokerParts) -> None:
    """As long as the backlog is large enough; near the end the PullProcessor serves the pulls."""
    peer = parts.peer()
    for offset in (COUNT - BACKLOG_FACTOR * WANTED, COUNT - BACKLOG_FACTOR * WANTED + 1):
        parts.pulls.invalidate()
        before = fast_path_pulls(parts)
        response = peer.call(pull(queue_offset=offset, max_msg_nums=WANTED))
        assert bodies(response) == [*range(offset, offset + WANTED)]
        assert fast_path_pulls(parts) - before == (offset == COUNT - BACKLOG_FACTOR * WANTED)


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_offset": -1},
        {"queue_offset": COUNT},
        {"queue_id": 99},
        {"topic": "none"},
        {"max_msg_nums": 0},
        {"subscription": "a"},
        {"subscription": "||"},
        {"sys_flag": 0},
        {"code": 361},
    ],
    ids=str,
)
async def test_other_pulls_are_left_to_the_pull_processor(parts: BrokerParts, fields: dict[str, Any]) -> None:
    """The PullProcessor serves them."""
    response = parts.peer().call(pull(**{"max_msg_nums": WANTED} | fields))
    assert (fast_path_pulls(parts), bool(response.remark)) == (0, True)


async def test_a_oneway_pull_gets_no_response(parts: BrokerParts) -> None:
    """The PullProcessor serves it without a response."""
    request = pull(max_msg_nums=WANTED)
    request.flag |= 2
    peer = parts.peer()
    peer.send(request)
    assert (peer.received, fast_path_pulls(parts)) == ([], 0)


async def test_changes_of_operators_take_effect_at_once(parts: BrokerParts) -> None:
    """After a change of a topic, a group or a setting, the next pull is checked again."""
    peer = parts.peer()

    def code() -> int:
        return peer.call(pull(max_msg_nums=WANTED)).code

    assert (code(), fast_path_pulls(parts)) == (0, 1)
    parts.topics.update(TopicConfig(TOPIC, 4, 4, perm=2))
    assert code() == 16
    parts.topics.update(TopicConfig(TOPIC, 4, 4))
    assert (code(), fast_path_pulls(parts)) == (0, 2)
    parts.groups.update(SubscriptionGroupConfig(GROUP, consume_enable=False))
    assert code() == 16
    parts.groups.update(SubscriptionGroupConfig(GROUP))
    assert (code(), fast_path_pulls(parts)) == (0, 3)
    config = parts.pulls._config
    parts.pulls.configure(msgspec.structs.replace(config, broker_permission=2))
    assert code() == 16
    parts.pulls.configure(config)
    assert (code(), fast_path_pulls(parts)) == (0, 4)


async def test_changes_of_subscriptions_take_effect_at_once(parts: BrokerParts) -> None:
    """A pull without its own subscription is checked against the group's latest heartbeat."""
    peer = parts.peer()
    peer.call(heartbeat(consumer(subscribe(TOPIC, "*", 1))))
    request = pull(max_msg_nums=WANTED, sys_flag=0, subscription=None)
    assert (peer.call(request).code, fast_path_pulls(parts)) == (0, 1)
    peer.call(heartbeat(consumer(subscribe(TOPIC, "b", 2))))
    assert bodies(peer.call(request)) == [1, 3, 5, 7, 9, 11, 13]
    peer.call(heartbeat(consumer(subscribe("other", "*", 3))))
    assert (peer.call(request).code, fast_path_pulls(parts)) == (24, 1)


async def test_a_group_that_was_reset_is_notified(parts: BrokerParts) -> None:
    """By its next pull, whichever path would serve it."""
    peer = parts.peer()
    assert (peer.call(pull(max_msg_nums=WANTED)).code, fast_path_pulls(parts)) == (0, 1)
    parts.offsets.reset(GROUP, TOPIC, 0, 50)
    response = peer.call(pull(queue_offset=WANTED, max_msg_nums=WANTED))
    assert (response.code, response.ext_fields()["nextBeginOffset"], fast_path_pulls(parts)) == (21, "50", 1)


async def test_a_removed_queue_is_not_read(parts: BrokerParts) -> None:
    """A topic that was created again has no messages of the former one."""
    peer = parts.peer()
    assert (peer.call(pull(max_msg_nums=WANTED)).code, fast_path_pulls(parts)) == (0, 1)
    await parts.store.delete_topic(TOPIC)
    assert peer.call(pull(queue_offset=WANTED, max_msg_nums=WANTED)).code == 21


@pytest.mark.parametrize(("believed_for_s", "looked_for"), [(60.0, [28, 56]), (-1.0, [28] * 8)])
async def test_located_units_expire(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch, believed_for_s: float, looked_for: list[int]
) -> None:
    """After they were used up more units are located; after some time they are located again."""
    monkeypatch.setattr(queue_reads, "RESIDENCY_TTL_S", believed_for_s)
    asked: list[int] = []
    ahead = parts.store.read_ahead

    def noted(topic: str, queue_id: int, offset: int, count: int) -> ReadAhead | None:
        asked.append(count)
        return ahead(topic, queue_id, offset, count)

    monkeypatch.setattr(parts.store, "read_ahead", noted)
    peer = parts.peer()
    for offset in range(0, 8 * WANTED, WANTED):
        assert bodies(peer.call(pull(queue_offset=offset, max_msg_nums=WANTED)))[0] == offset
    assert (asked, fast_path_pulls(parts)) == (looked_for, 8)


async def test_the_number_of_streams_is_limited(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups pull."""
    monkeypatch.setattr(fast_path, "MAX_STREAMS", 3)
    peer = parts.peer()
    for number in range(10):
        assert peer.call(pull(consumer_group=f"g{number}", max_msg_nums=WANTED)).code == 0
        assert len(parts.pulls._fast_path._streams) <= 3
    assert fast_path_pulls(parts) == 10


async def test_a_run_ends_after_a_number_of_response_bytes(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the connection's write limits are checked."""
    monkeypatch.setattr(fast_path, "RUN_RESPONSE_BYTES", 1_000)
    parts.selector.configure(RemotingConfig(peer_backlog_bytes=1_000))
    peer = parts.peer()
    peer.transport.stuck = True
    peer.send(*[pull(queue_offset=WANTED * number, max_msg_nums=WANTED) for number in range(8)])
    assert fast_path_pulls(parts) == 2
    assert peer.connection.paused


async def test_the_pull_processor_reports_a_failure(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed fast-path pull does not affect those before it; the PullProcessor serves or refuses it."""
    peer = parts.peer()
    assert peer.call(pull(max_msg_nums=WANTED)).code == 0

    def fail(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(fast_path, "found_head", fail)
    assert bodies(peer.call(pull(queue_offset=WANTED, max_msg_nums=WANTED)))[0] == WANTED
    assert "no luck" in caplog.text
