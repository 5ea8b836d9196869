"""Runs of fast-path sends: stored data and responses equal those of the general path, compiled and in pure Python."""

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.processors.send.messages import FastPathSend, SendMessages
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.remoting.busy_polling import BusyPolling
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.store.files.config import FlushDiskType
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol import compiled, stream
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageResponseHeader, SendMessageV2Header
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder
from tests.broker.processors.send.test_processor import NOW, Sends, send
from tests.harness.rounds import rounds
from tests.harness.stores import TestDisk

HOST = encode_host("10.0.0.1", 10911)
BORN_HOST = encode_host("10.0.0.2", 40_000)
COMMON = "UNIQ_KEY\x01A\x02"
ENTRIES = (
    "KEYS\x01a b", "KEYS\x01a", "KEYS\x01 ", "TAGS\x01TagA", "TAGS\x01a || b", "WAIT\x01true",
    "WAIT\x01false", "WAIT\x01TRUE", "x\x01y", "x\x01", "\x01y", "x", "DELAYED\x01no", "TIMER_DELAY_SEC\x010",
    "TRAN_MSG\x01false", "CLUSTER\x01c", "POP_CK\x01p", "a\x01b\x01c", "CLUSTERS\x01c", "UNIQ_KEY\x01B", "UNIQ_KEY\x01",
    "UNIQ_KEY\x01\u00fc", "n\x01\u8ba2", "TAGS\x01\u8ba2",
)  # fmt: skip


class Host:
    """The part of a connection that appends need."""

    peer_host = BORN_HOST


def passes() -> list[Any]:
    """Return the pure-Python pass, and the compiled one if available."""
    return [stream.python_decode_frames, stream.decode_whole_frames]


def seen(append: Append) -> tuple[Any, ...]:
    """Return what the store derives from an append."""
    what = append.topic, append.queue_id, bytes(append.body), append.properties, append.tags_code, append.flag
    return *what, append.sys_flag, append.born_timestamp, append.born_host, append.reconsume_times, append.wait_flush


def properties(choice: random.Random) -> str:
    """Return properties of all kinds, most of them common."""
    entries = [f"UNIQ_KEY\x01{choice.randrange(10**9):X}", *choice.sample(ENTRIES[:6], choice.randrange(4))]
    if choice.random() < 0.3:
        entries.append(choice.choice(ENTRIES))
    choice.shuffle(entries)
    return "\x02".join(entries) + choice.choice(("\x02", ""))


@pytest.mark.parametrize("decode", passes(), ids=["interpreted", "as-installed"])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_fast_path_appends_equal_those_of_the_general_path(decode: stream.DecodeFrames, code: int) -> None:
    """Field by field for many random messages, with the keys that the index would find."""
    choice = random.Random(9)
    messages = SendMessages(PropertyCompletion("C", lambda: "MADE"), 4 << 20, Deferral(()).defer, lambda: 0)
    topic, header_type = (
        TopicConfig("T"),
        SendMessageHeader if code == RequestCode.SEND_MESSAGE else SendMessageV2Header,
    )
    fast = 0
    for _ in range(rounds(10_000)):
        command = decoded(
            decode, send(b"b", code=code, properties=properties(choice), reconsume_times=choice.choice((None, 2)))
        )
        found = messages.fast_path_sends([command], 0, {"T": 16}, BORN_HOST)
        if not found:
            continue
        (made,) = found
        fast += 1
        general, unique_key, _ = messages.single(connection(), command, command.header(header_type), topic)
        assert seen(made[1]) == seen(general)
        assert (made[0], made[2]) == (command, unique_key.encode())
        assert made[1].keys == index_keys(made[1].properties)
    assert fast > rounds(5_000)


def connection() -> Connection:
    host: Any = Host()
    taken: Connection = host
    return taken


def decoded(decode: stream.DecodeFrames, command: RemotingCommand) -> RemotingCommand:
    commands: list[RemotingCommand] = []
    decode(memoryview(encode_command(command)), 0, 1 << 24, commands)
    return commands[0]


def ways() -> list[Callable[[SendResponses], Any]]:
    return [lambda responses: responses._stored_all, lambda responses: responses.stored_all]


@pytest.mark.parametrize("way", ways(), ids=["interpreted", "as-installed"])
@pytest.mark.parametrize("region", ["DefaultRegion", 'odd "%d" \u8ba2', "x" * 2_000])
def test_responses_of_a_run_equal_single_ones(way: Callable[[SendResponses], Any], region: str) -> None:
    """Frame by frame; sends that are not stored, or need no response, are returned."""
    responses = SendResponses(region, trace_on=True, store_host=HOST)
    sends, expected, others = [], b"", []
    for opaque in (0, 1, -1, 2**31 - 1, -(2**31), 9, 10, 99, 100):
        for offset in (0, 0xABCDEF, 2**63 - 1):
            status = PutStatus.UNKNOWN_ERROR if opaque == 9 else PutStatus.PUT_OK
            append = Append("T", 3, b"", b"", 0, 0, 0, 0, BORN_HOST)
            append.status, append.physical_offset, append.queue_offset = status, offset, offset // 3
            command = RemotingCommand(code=310, opaque=opaque, flag=2 if opaque == 10 else 0)
            one = (command, append, b"UNIQ0")
            sends.append(one)
            if opaque in {9, 10}:
                others.append(one)
            else:
                expected += responses.stored(command, offset, 3, offset // 3, "UNIQ0") or b""
    frames, rest = way(responses)(sends)
    assert (frames, rest) in [(expected, others), (b"", sends)]
    assert frames or len(region) > 1_000


@pytest.mark.parametrize("way", ways(), ids=["interpreted", "as-installed"])
def test_responses_of_a_run_in_other_dialects_equal_single_ones(way: Callable[[SendResponses], Any]) -> None:
    """Binary: equal to the general encoder byte by byte. MessagePack: the same fields, by position; both variants give
    the same bytes."""
    responses = SendResponses("R", trace_on=False, store_host=HOST)
    sends: dict[int, list[FastPathSend]] = {ROCKETMQ: [], MSGPACK: []}
    general: dict[int, bytes] = {ROCKETMQ: b"", MSGPACK: b""}
    for dialect, run in sends.items():
        for opaque, offset in ((0, 0), (-1, 2**62), (7, 12), (2**31 - 1, 2**40 + 5)):
            append = Append("T", 13, b"", b"", 0, 0, 0, 0, BORN_HOST)
            append.status, append.physical_offset, append.queue_offset = PutStatus.PUT_OK, offset, offset // 3
            command = RemotingCommand(code=310, opaque=opaque, dialect=dialect)
            run.append((command, append, b"UNIQ0"))
            header = SendMessageResponseHeader(responses.message_ids([append]), 13, offset // 3, "UNIQ0")
            general[dialect] += responses.stored_general(command, ResponseCode.SUCCESS, None, header)
    frames, others = responses._stored_all(sends[MSGPACK])
    assert (decoded_responses(frames), others) == (decoded_responses(general[MSGPACK]), [])
    both = sends[ROCKETMQ] + sends[MSGPACK]
    assert way(responses)(both) == (general[ROCKETMQ] + frames, [])
    refused = sends[MSGPACK][:1]
    refused[0][1].status = PutStatus.UNKNOWN_ERROR
    assert way(responses)(refused) == (b"", refused)


def decoded_responses(frames: bytes) -> list[Any]:
    """Return the content of responses."""
    responses = CommandDecoder().feed_commands(memoryview(frames))
    outer = [(a.code, a.flag, a.language_code, a.opaque, a.remark, a.version) for a in responses]
    return [
        outer,
        [a.ext_fields() for a in responses],
        [a.header(SendMessageResponseHeader).to_ext() for a in responses],
    ]


async def test_a_send_that_does_not_qualify_ends_the_run(tmp_path: Path) -> None:
    """A batch flag, an unknown topic, a missing key and a delay between fast-path sends: each gets its response, in
    order."""
    sends = Sends(tmp_path)
    differently: list[dict[str, Any]] = [
        {}, {"properties": ""}, {"topic": "made now"}, {"topic": "New"}, {"queue_id": -1}, {"queue_id": 99},
        {"properties": f"{COMMON}DELAY\x011\x02"}, {}, {"batch": "true"}, {"topic": "New"},
    ]  # fmt: skip
    commands = [send(**{"properties": COMMON} | fields) for fields in differently]
    sends.peer.send(*commands)
    codes = {each.opaque: each.code for each in sends.peer.received}
    assert [codes[n] for n in range(1, 11)] == [0, 0, 29, 0, 0, 29, 0, 0, 1, 0]
    sends.store.close()


async def test_a_changed_topic_is_checked_again(tmp_path: Path) -> None:
    """A send to a removed queue is refused, though the fast path served sends to it."""
    sends = Sends(tmp_path)
    fields: dict[str, Any] = {"queue_id": 3, "properties": COMMON}
    assert [sends.call(**fields).code for _ in range(3)] == [0, 0, 0]
    sends.topics.update(TopicConfig("T", 2, 2))
    assert sends.call(**fields).code == 29
    sends.topics.delete("T")
    assert sends.call(**fields, default_topic="none").code == 17
    sends.store.close()


async def test_a_failed_write_refuses_the_whole_run(tmp_path: Path) -> None:
    """Each send of the read is refused."""
    disk = TestDisk()
    sends = Sends(tmp_path, disk)
    assert [sends.call(properties=COMMON).code for _ in range(2)] == [0, 0]

    def refuse(call: str, path: str) -> None:
        if call == "pwrite" and "commitlog" in path:
            raise OSError(errno.EIO, "broken")

    disk.refuse, may = refuse, disk.refuse
    sends.peer.send(*(send(properties=COMMON) for _ in range(5)))
    disk.refuse = may
    assert [response.code for response in sends.peer.received[2:]] == [1] * 5
    assert sends.store.max_offset("T", 0) == 2
    sends.store.close()


async def test_a_response_does_not_wait_for_consumers(tmp_path: Path) -> None:
    """It is written before the message is dispatched, and that happens before anything else."""
    sends = Sends(tmp_path)
    sends.call(properties=COMMON)  # makes the topic known to the fast path
    answered: list[bool] = []
    sends.store._dispatch.on_arrival = lambda *_: answered.append(bool(sends.peer.transport.written))
    sends.peer.send(send(properties=COMMON), send(properties=COMMON))
    assert answered == [True]
    assert sends.store.messages_from("T", 0, 0) == 3
    sends.store.close()


def poll_always(sends: Sends) -> BusyPolling:
    """Let the peer's connection poll for 400 µs, whatever the number of processors."""
    polling = sends.peer.connection._busy_polling = BusyPolling(400, sends.peer.selector.read_scheduler)
    return polling


async def test_the_loop_polls_for_a_single_producer(tmp_path: Path) -> None:
    """After a single send, not after several."""
    sends = Sends(tmp_path)
    sends.call(properties=COMMON)  # makes the topic known to the fast path
    polling = poll_always(sends)
    sends.call(properties=COMMON)
    assert polling.statistics().polls == 1
    sends.peer.send(send(properties=COMMON), send(properties=COMMON))
    assert polling.statistics().polls == 1
    sends.store.close()


@pytest.mark.parametrize("is_interpreted", [True, False])
async def test_the_loop_polls_for_a_compiled_flusher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_interpreted: bool
) -> None:
    """Once for the flush and once for the next send; the flusher polls, too."""
    sends = Sends(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    flusher = sends.store._durability.log._flusher
    assert flusher is not None
    awake_us: list[int] = []
    monkeypatch.setattr(sends.store._durability.log, "is_interpreted", is_interpreted)
    monkeypatch.setattr(flusher, "keep_spinning", awake_us.append)

    def send_one() -> BusyPolling:
        polling = poll_always(sends)
        sends.peer.send(send(properties=COMMON))
        flusher.wait_idle()
        sends.store.step(NOW)
        return polling

    send_one()  # makes the topic known to the fast path
    polling = send_one()
    sends.peer.take()
    assert len(sends.peer.received) == 2
    assert (polling.statistics().polls, awake_us) == ((0, []) if is_interpreted else (2, [400]))
    sends.store.close()


async def test_a_response_does_not_wait_for_dispatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a flush, the responses that waited for it are written before consumers see the messages."""
    sends = Sends(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    log = sends.store._durability.log
    flusher, dispatch = log._flusher, log._dispatch
    assert flusher is not None
    written: list[int] = []

    def note(appends: Sequence[Append]) -> None:
        written.append(len(sends.peer.transport.written))
        dispatch(appends)

    monkeypatch.setattr(log, "_dispatch", note)
    for _ in range(2):  # the first send makes the topic known to the fast path
        sends.peer.send(send(properties=COMMON))
        flusher.wait_idle()
        sends.store.step(NOW)
    assert len(written) == 2
    assert all(written)
    sends.store.close()


async def test_a_single_producer_is_flushed_in_its_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four single sends in a row the store may flush in the loop, until another send comes; and the loop polls
    for the next send, not for the flush."""
    sends = Sends(tmp_path, disk=TestDisk(), flush_disk_type=FlushDiskType.SYNC_FLUSH)
    write = sends.store.write
    alone: list[bool] = []

    def note(is_lone: bool = False) -> list[Append]:
        alone.append(is_lone)
        return write(is_lone)

    monkeypatch.setattr(sends.store, "write", note)
    assert sends.store.flush.is_interpreted
    polling = poll_always(sends)
    for count in (1, 1, 1, 1, 1, 1, 1, 2, 1):  # at the first one the topic is looked at
        sends.peer.send(*[send(properties=COMMON) for _ in range(count)])
        assert sends.store._durability.log._flusher is not None
        sends.store._durability.log._flusher.wait_idle()
        sends.store.step(NOW)
    assert alone == [False] * 5 + [True] * 2 + [False] * 2
    assert polling.statistics().polls == 2
    sends.peer.take()
    assert [response.code for response in sends.peer.received] == [0] * 10
    sends.store.close()


def test_this_installation_reports_its_variant() -> None:
    """Compiled, unless the modules were not built or are switched off."""
    is_interpreted = stream.decode_whole_frames is stream.python_decode_frames
    assert is_interpreted == (compiled.load("decode") is None)
