"""Plain pulls: the same answers and the same books as any others, while something is ahead; and what ends a lane."""

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
COUNT = 100  # messages of each queue
WANTED = 7
SIZES = {"mapped_file_size_commit_log": 20_000, "mapped_file_size_consume_queue": 1_400}


def fill(parts: BrokerParts) -> None:
    """Queues that were filled together, over several segments of the log and of each queue."""
    for number in range(COUNT):
        for queue_id in range(QUEUES):
            parts.put(b"%d" % number, queue_id=queue_id, tag="ab"[number % 2])


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path, **SIZES) as it:
        fill(it)
        yield it


def plain(parts: BrokerParts) -> int:
    """How many pulls were answered as plain ones."""
    return parts.pulls._fast_path.found


def bodies(answer: RemotingCommand) -> list[int]:
    return [int(bytes(it.body)) for it in iterate(memoryview(answer.body)) if isinstance(it, Record)]


def frame_of(command: RemotingCommand) -> bytes:
    """As clients write it: those that speak MessagePack give the fields by their place."""
    if command.dialect == MSGPACK:
        return encode_frame(MSGPACK, encode_positional(command, command.header(PullMessageHeader)))
    return encode_command(command)


def catch_up(peer: Peer, dialect: int, **fields: Any) -> list[RemotingCommand]:
    """The answers to who reads every queue to its end, side by side."""
    offsets = dict.fromkeys(range(QUEUES), 0)
    answers: list[RemotingCommand] = []
    while offsets:
        asked = [
            pull(**{"max_msg_nums": WANTED, "queue_id": queue_id, "queue_offset": at} | fields)
            for queue_id, at in offsets.items()
        ]
        for opaque, command in enumerate(asked, 1):
            command.dialect, command.opaque = dialect, opaque
        peer.received.clear()
        peer.send_bytes(b"".join(map(frame_of, asked)))
        for command, queue_id, answer in zip(asked, list(offsets), peer.received, strict=True):
            assert answer.opaque == command.opaque
            offsets[queue_id] = int(answer.ext_fields()["nextBeginOffset"])
            if answer.code:
                del offsets[queue_id]
        answers += peer.received
    return answers


def told(answer: RemotingCommand) -> tuple[object, ...]:
    return answer.code, answer.remark, answer.flag, answer.version, answer.ext_fields(), bytes(answer.body)


def books(parts: BrokerParts) -> tuple[object, ...]:
    """Everything that is kept of pulls."""
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
async def test_plain_or_not_is_the_same(tmp_path: Path, dialect: int, most_bytes: int, is_registered: bool) -> None:
    """Who catches up gets the same answers and leaves the same books as if each pull were looked at for itself."""
    flags = PullSysFlag.COMMIT_OFFSET | (0 if is_registered else PullSysFlag.SUBSCRIPTION)
    seen = []
    for is_plain in (True, False):
        settings = SIZES | {"max_transfer_bytes_on_message_in_memory": most_bytes}
        with broker_parts(tmp_path / str(is_plain), **settings) as parts:
            if not is_plain:
                parts.dispatcher._runs.clear()
            fill(parts)
            peer = parts.peer()
            peer.ask(heartbeat(consumer(subscribe(TOPIC, "*", 1))))
            parts.dispatcher.latencies.rows.clear()
            answers = catch_up(peer, dialect, sys_flag=flags, commit_offset=5)
            seen.append(([told(answer) for answer in answers], books(parts)))
            assert bool(plain(parts)) == (is_plain and dialect != ROCKETMQ)
            assert sorted(body for answer in answers for body in bodies(answer)) == sorted([*range(COUNT)] * QUEUES)
    assert seen[0] == seen[1]


async def test_who_is_far_behind_is_served_so(parts: BrokerParts) -> None:
    """As long as enough is ahead; who has nearly caught up is served like anybody."""
    peer = parts.peer()
    for offset in (COUNT - BACKLOG_FACTOR * WANTED, COUNT - BACKLOG_FACTOR * WANTED + 1):
        parts.pulls.invalidate()
        before = plain(parts)
        answer = peer.ask(pull(queue_offset=offset, max_msg_nums=WANTED))
        assert bodies(answer) == [*range(offset, offset + WANTED)]
        assert plain(parts) - before == (offset == COUNT - BACKLOG_FACTOR * WANTED)


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
async def test_what_is_not_plain(parts: BrokerParts, fields: dict[str, Any]) -> None:
    """It is left to the PullProcessor, and answered by it."""
    answer = parts.peer().ask(pull(**{"max_msg_nums": WANTED} | fields))
    assert (plain(parts), bool(answer.remark)) == (0, True)


async def test_nobody_waits_for_the_answer_to_a_oneway_pull(parts: BrokerParts) -> None:
    """It is not answered."""
    request = pull(max_msg_nums=WANTED)
    request.flag |= 2
    peer = parts.peer()
    peer.send(request)
    assert (peer.received, plain(parts)) == ([], 0)


async def test_what_an_operator_changes_counts_at_once(parts: BrokerParts) -> None:
    """A topic, a group or a setting that changed: the next pull is checked anew."""
    peer = parts.peer()

    def code() -> int:
        return peer.ask(pull(max_msg_nums=WANTED)).code

    assert (code(), plain(parts)) == (0, 1)
    parts.topics.update(TopicConfig(TOPIC, 4, 4, perm=2))
    assert code() == 16
    parts.topics.update(TopicConfig(TOPIC, 4, 4))
    assert (code(), plain(parts)) == (0, 2)
    parts.groups.update(SubscriptionGroupConfig(GROUP, consume_enable=False))
    assert code() == 16
    parts.groups.update(SubscriptionGroupConfig(GROUP))
    assert (code(), plain(parts)) == (0, 3)
    config = parts.pulls._config
    parts.pulls.configure(msgspec.structs.replace(config, broker_permission=2))
    assert code() == 16
    parts.pulls.configure(config)
    assert (code(), plain(parts)) == (0, 4)


async def test_what_a_group_subscribes_to_counts_at_once(parts: BrokerParts) -> None:
    """A pull that relies on its group's heartbeat is checked against the last one."""
    peer = parts.peer()
    peer.ask(heartbeat(consumer(subscribe(TOPIC, "*", 1))))
    request = pull(max_msg_nums=WANTED, sys_flag=0, subscription=None)
    assert (peer.ask(request).code, plain(parts)) == (0, 1)
    peer.ask(heartbeat(consumer(subscribe(TOPIC, "b", 2))))
    assert bodies(peer.ask(request)) == [1, 3, 5, 7, 9, 11, 13]
    peer.ask(heartbeat(consumer(subscribe("other", "*", 3))))
    assert (peer.ask(request).code, plain(parts)) == (24, 1)


async def test_a_group_that_was_reset_is_told(parts: BrokerParts) -> None:
    """By its next pull, plain or not."""
    peer = parts.peer()
    assert (peer.ask(pull(max_msg_nums=WANTED)).code, plain(parts)) == (0, 1)
    parts.offsets.reset(GROUP, TOPIC, 0, 50)
    answer = peer.ask(pull(queue_offset=WANTED, max_msg_nums=WANTED))
    assert (answer.code, answer.ext_fields()["nextBeginOffset"], plain(parts)) == (21, "50", 1)


async def test_a_queue_that_was_removed_is_not_read(parts: BrokerParts) -> None:
    """A topic made again has none of the messages of the one before."""
    peer = parts.peer()
    assert (peer.ask(pull(max_msg_nums=WANTED)).code, plain(parts)) == (0, 1)
    await parts.store.delete_topic(TOPIC)
    assert peer.ask(pull(queue_offset=WANTED, max_msg_nums=WANTED)).code == 21


@pytest.mark.parametrize(("believed_for_s", "looked_for"), [(60.0, [28, 56]), (-1.0, [28] * 8)])
async def test_memory_is_believed_in_for_a_moment(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch, believed_for_s: float, looked_for: list[int]
) -> None:
    """What was used up is made longer; what is old is looked for anew."""
    monkeypatch.setattr(queue_reads, "RESIDENCY_TTL_S", believed_for_s)
    asked: list[int] = []
    ahead = parts.store.read_ahead

    def noted(topic: str, queue_id: int, offset: int, count: int) -> ReadAhead | None:
        asked.append(count)
        return ahead(topic, queue_id, offset, count)

    monkeypatch.setattr(parts.store, "read_ahead", noted)
    peer = parts.peer()
    for offset in range(0, 8 * WANTED, WANTED):
        assert bodies(peer.ask(pull(queue_offset=offset, max_msg_nums=WANTED)))[0] == offset
    assert (asked, plain(parts)) == (looked_for, 8)


async def test_not_more_is_kept_than_was_said(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups read, there is a bound on their lanes."""
    monkeypatch.setattr(fast_path, "MAX_STREAMS", 3)
    peer = parts.peer()
    for number in range(10):
        assert peer.ask(pull(consumer_group=f"g{number}", max_msg_nums=WANTED)).code == 0
        assert len(parts.pulls._fast_path._streams) <= 3
    assert plain(parts) == 10


async def test_a_run_ends_where_its_peer_may_be_behind(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind so many bytes somebody has to look whether they are taken."""
    monkeypatch.setattr(fast_path, "RUN_RESPONSE_BYTES", 1_000)
    parts.selector.configure(RemotingConfig(peer_backlog_bytes=1_000))
    peer = parts.peer()
    peer.transport.stuck = True
    peer.send(*[pull(queue_offset=WANTED * number, max_msg_nums=WANTED) for number in range(8)])
    assert plain(parts) == 2
    assert peer.connection.paused


async def test_a_failure_is_told_by_the_pull_processor(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes wrong with a plain pull does not disturb those before it; it is served, or refused, as any other."""
    peer = parts.peer()
    assert peer.ask(pull(max_msg_nums=WANTED)).code == 0

    def fail(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(fast_path, "found_head", fail)
    assert bodies(peer.ask(pull(queue_offset=WANTED, max_msg_nums=WANTED)))[0] == WANTED
    assert "no luck" in caplog.text
