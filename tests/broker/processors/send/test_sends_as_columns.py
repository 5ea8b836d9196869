"""Sends as columns: log, queues, index and answers have the same bytes as when each send is served for itself."""

import errno
import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.remoting.admission import PoolLimits
from skylarkmq.broker.store.config import FlushDiskType
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.log.append_columns import AppendColumns, messages_in
from skylarkmq.protocol import compiled, stream
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.command import RemotingCommand
from tests.broker.processors.send.test_processor import NOW, Sends
from tests.harness.stores import TestDisk
from tests.protocol.test_send_columns import by_columns, send

pytestmark = pytest.mark.skipif(compiled.load("record") is not None, reason="compiled stores take no columns")

SMALL_INDEX = {"max_hash_slot_num": 5_000, "max_index_num": 2_000}
Feed = Callable[[Sends], None]


def files(root: Path) -> dict[str, str]:
    """Digests of what the store left; index files are named by the time."""
    found = {}
    for directory in ("commitlog", "consumequeue", "index"):
        paths = sorted(path for path in (root / directory).rglob("*") if path.is_file())
        for number, path in enumerate(paths):
            name = f"index/{number}" if directory == "index" else str(path.relative_to(root))
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: Feed, disk: type[TestDisk] | None = None, **settings: Any
) -> tuple[Sends, int]:
    """Feed two brokers, and hold all that can be seen of one to the other; the second one, and how many messages it
    took in columns."""
    taken = 0
    outcomes, brokers = [], []
    for way in (stream.python_decode_frames, by_columns()):
        monkeypatch.setattr(stream, "decode_whole_frames", way)
        random.seed(1)  # who names no queue gets any
        root = tmp_path / way.__name__
        sends = Sends(root, disk() if disk else None, **SMALL_INDEX, **settings)
        put = sends.store.put_columns

        def count(columns: AppendColumns, put: Callable[[AppendColumns], bool] = put) -> bool:
            nonlocal taken
            is_put = put(columns)
            taken += len(columns) * is_put
            return is_put

        sends.store.put_columns = count
        feed(sends)
        answers = bytes(sends.peer.transport.written)
        statistics = sends.store.statistics()
        traffic = {topic: (t.sizes.counts, t.sizes.total) for topic, t in sends.store.traffic().items()}
        held = sends.pool.pending
        sends.store.close()
        brokers.append(sends)
        outcomes.append((answers, files(root), statistics.log, statistics.dispatched, traffic, held))
    assert outcomes[0] == outcomes[1]
    return brokers[-1], taken


def frames(count: int, first: int = 1_000, **fields: Any) -> bytes:
    return b"".join(send(first + n, b"%d" % n * (n % 40), **fields) for n in range(count))


@pytest.mark.parametrize("code", [310, 10])
async def test_plain_sends_leave_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Reads of many, with and without sends of their own before and behind them; queues that are new, too."""

    def feed(sends: Sends) -> None:
        sends.topics.update(TopicConfig("T", 16, 16))
        for turn in range(6):
            sends.peer.send_bytes(frames(turn * 30 + 1, 1_000 * turn + 1_000, code=code))
        for turn in range(6):
            sends.peer.send_bytes(send(7, queue_id=turn) + frames(60) + send(8, queue_id=-1) + frames(40, 10_000))

    _, taken = both_ways(tmp_path, monkeypatch, feed)
    assert taken > 400


async def test_sends_of_many_topics_leave_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names as long as each other and not, numbers of queues that differ, the index and arrivals too; one topic among
    them that is unknown, or has no such queue."""
    names = [f"T{number}" for number in range(20)] + ["y" * 128]

    def feed(sends: Sends) -> None:
        for number, name in enumerate(names):
            sends.topics.update(TopicConfig(name, number % 3 + 4, 4))
        for number in range(4 * len(names)):
            sends.peer.send_bytes(send(number, topic=names[number // 4]))
        choice = random.Random(1)
        for turn in range(6):
            first = 1_000 * turn + 1_000
            read = [send(first + at, bytes(at), topic=choice.choice(names[:20])) for at in range(60)]
            sends.peer.send_bytes(b"".join(read))
            sends.peer.send_bytes(b"".join([*read, send(8_000, topic=names[-1])]))
            sends.peer.send_bytes(b"".join([*read, send(8_000, topic=choice.choice(("N9", "T1")), queue_id=5)]))

    _, taken = both_ways(tmp_path, monkeypatch, feed)
    assert taken >= 300


async def test_what_is_not_plain_is_served_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown topic, a queue that is not there, a delay, a transaction, names that want a look."""
    unusual: list[dict[str, Any]] = [
        {"topic": "New"}, {"topic": "none", "default_topic": "none"}, {"queue_id": 5}, {"sys_flag": 4},
        {"sys_flag": 8}, {"properties": "UNIQ_KEY\x01A\x02DELAY\x011\x02"}, {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"properties": "UNIQ_KEY\x01A\x02WAIT\x01false\x02"}, {"properties": "UNIQ_KEY\x01A-\x02"},
        {"properties": "UNIQ_KEY\x01A\x02CLUSTER\x01c\x02"}, {"properties": f"UNIQ_KEY\x01{'A' * 65}\x02"},
    ]  # fmt: skip

    def feed(sends: Sends) -> None:
        sends.peer.send_bytes(frames(50))
        for fields in unusual:
            sends.peer.send_bytes(frames(60, **fields))

    both_ways(tmp_path, monkeypatch, feed)


async def test_sends_that_do_not_fit_go_where_single_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the next segment; and a body that is too long is refused by itself."""

    def feed(sends: Sends) -> None:
        for turn in range(40):
            sends.peer.send_bytes(frames(50, 1_000 * turn))
        sends.peer.send_bytes(frames(30) + send(5_000, bytes(9_000)) + frames(30))

    settings: dict[str, Any] = {"mapped_file_size_commit_log": 100_000, "max_message_size": 8_000}
    sends, taken = both_ways(tmp_path, monkeypatch, feed, **settings)
    assert taken > 1_000
    assert sends.store.max_physical_offset > 400_000


async def test_sends_wait_for_the_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under SYNC_FLUSH: answered when the flusher has passed them, held in the pool until then."""

    def feed(sends: Sends) -> None:
        disk = sends.store._disk
        assert isinstance(disk, TestDisk)
        for turn in range(3):
            disk.syncs.clear()
            sends.peer.send_bytes(frames(80, 1_000 * turn + 1_000))
            assert sends.pool.pending == 80
            disk.syncs.set()
            flusher = sends.store._durability.log._flusher
            assert flusher is not None
            flusher.wait_idle()
            sends.store.step(NOW)
            assert sends.pool.pending == 0

    _, taken = both_ways(tmp_path, monkeypatch, feed, TestDisk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert taken == 160  # at the first ones the topic is looked at


async def test_an_overdue_flush_is_told_to_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLUSH_DISK_TIMEOUT, with the place where each message is stored."""

    def feed(sends: Sends) -> None:
        sends.peer.send_bytes(frames(50))
        sends.store._durability.log._waiting.expire(NOW + 60_000)

    settings: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    both_ways(tmp_path, monkeypatch, feed, **settings)


async def test_a_write_that_fails_is_told_to_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And queue offsets return, so that the next messages take the places of those."""

    def feed(sends: Sends) -> None:
        disk = sends.store._disk
        assert isinstance(disk, TestDisk)
        sends.peer.send_bytes(frames(40))

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and "commitlog" in path:
                raise OSError(errno.EIO, "broken")

        disk.refuse, may = refuse, disk.refuse
        sends.peer.send_bytes(send(5) + frames(40))
        disk.refuse = may
        sends.peer.send_bytes(frames(40))

    both_ways(tmp_path, monkeypatch, feed, TestDisk)


async def test_a_full_pool_refuses_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many answers as requests; and those that a slow peer makes wait are served when it has read."""

    def feed(sends: Sends) -> None:
        sends.pool.configure(0, PoolLimits())
        sends.peer.send_bytes(frames(40))
        sends.pool.configure(100, PoolLimits())
        sends.peer.send_bytes(frames(40))

    both_ways(tmp_path, monkeypatch, feed)


async def test_columns_that_wait_for_their_peer_keep_what_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are taken apart, into memory of their own."""

    def feed(sends: Sends) -> None:
        connection = sends.peer.connection
        commands: list[RemotingCommand] = []
        buffer = bytearray(frames(40))
        stream.decode_whole_frames(memoryview(buffer), 0, 1 << 24, commands)
        connection._defer(commands)
        buffer[:] = bytes(len(buffer))
        assert len(connection._deferred) == 40
        sends.peer.selector.read(connection, connection._take_deferred())

    both_ways(tmp_path, monkeypatch, feed)


async def test_random_reads_leave_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends of several producers with all kinds of keys, tags, queues and bodies; some of them are not plain."""

    def feed(sends: Sends) -> None:
        choice = random.Random(3)
        for turn in range(60):
            read = []
            width, tags = choice.choice((1, 4)), choice.choice(("A", "AB", "A||B"))
            for n in range(choice.choice((3, 30, 150))):
                keys = "".join(choice.choices("abc019-", k=width))
                text = f"KEYS\x01{keys}\x02UNIQ_KEY\x01{choice.getrandbits(64):016X}\x02TAGS\x01{choice.choice(tags)}"
                if choice.random() < 0.005:
                    text += choice.choice(("\x02DELAY\x011", "\x02x\x01\u00fc", "\x02WAIT\x01false"))
                number = 1_000 + turn * 200 + n
                read.append(send(number, bytes(choice.randrange(200)), queue_id=choice.randrange(4), properties=text))
            sends.peer.send_bytes(b"".join(read))

    _, taken = both_ways(tmp_path, monkeypatch, feed)
    assert taken > 500


def test_columns_count_for_their_messages() -> None:
    """Among appends; and one taken out has what its answer needs."""
    columns = AppendColumns(
        ["T", "T"],
        [0, 1],
        [b"a", b"b"],
        [b"p\x02", b"q\x02"],
        b"END",
        [5, 6],
        1,
        0,
        [3, 4],
        bytes(8),
        2,
        [b"u", b"k", b"v", b"l"],
    )
    assert messages_in([columns, columns]) == 4
    append = columns.append(1)
    assert (append.queue_id, append.body, append.properties, append.tags_code) == (1, b"b", b"q\x02END", 6)
    assert (append.keys, append.status, append.born_timestamp) == ([b"v", b"l"], PutStatus.PENDING, 4)
