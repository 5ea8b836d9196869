"""The log of a real store on both ends of a link: epoch records, whole records, what is shown and when."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.events import Event, Synced, SyncFailed, Written
from skylarkmq.broker.ha.link import store_log
from skylarkmq.broker.ha.link.copies import LinkCopies
from skylarkmq.broker.ha.link.epoch_records import EPOCH_TOPIC, EpochScan, _has_topic
from skylarkmq.broker.ha.link.links import Links, LinkSettings
from skylarkmq.broker.ha.link.log_bytes import FileRange
from skylarkmq.broker.ha.link.runner import DamagedLogError, TermFailed
from skylarkmq.broker.ha.link.store_log import FollowerLog, LeaderLog, StoreBytes
from skylarkmq.broker.store.flush import log_flush
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.stores import BORN_HOST, SEGMENT_BYTES, Opened, message, opened
from tests.harness.waiting import until

FOUNDED = founded("a")


def bytes_of(one: Opened) -> StoreBytes:
    return StoreBytes(one.store, SEGMENT_BYTES)


def links_of(one: Opened) -> Links:
    return Links(LinkSettings("n1", {}, SEGMENT_BYTES), bytes_of(one), lambda: 0)


@asynccontextmanager
async def leading(root: Path, copies: LinkCopies | None = None) -> AsyncIterator[tuple[Opened, LeaderLog, list[Event]]]:
    """Open a store that leads, and yield it with its log and the events of the log."""
    events: list[Event] = []
    with opened(root, sync=True, loop=asyncio.get_running_loop()) as one:
        if copies is not None:
            one.store.flush.replicate(copies)
        log = LeaderLog(one.store, "n1", BORN_HOST, copies, one.clock)
        log.attach(events.append, links_of(one))
        yield one, log, events


def follower_log(one: Opened, events: list[Event]) -> FollowerLog:
    assert one.store.replica is not None
    log = FollowerLog(one.store.replica, bytes_of(one), one.store)
    log.attach(events.append, links_of(one))
    return log


async def test_a_term_begins_with_a_record_in_the_log(tmp_path: Path) -> None:
    """The event has its offset, and the log shows it after the next start."""
    async with leading(tmp_path) as (one, log, events):
        one.put(message(b"before"))
        at = one.store.max_physical_offset
        written = log.begin_term(3, ("a", "b"))
        assert written == Written(one.store.max_physical_offset, (Epoch(3, at),))
        await until(lambda: Synced(written.end) in events)
        assert Written(written.end) in events
        assert bytes_of(one).epochs(EpochHistory((FOUNDED,))) == EpochHistory((FOUNDED, Epoch(3, at)))
    with opened(tmp_path) as one:
        assert one.bodies(EPOCH_TOPIC) == [b'{"epoch":3,"inSync":["a","b"],"leader":"n1"}']
        assert bytes_of(one).epochs(EpochHistory()) == EpochHistory((Epoch(3, at),))


async def test_epochs_before_the_start_of_the_log_come_from_the_file(tmp_path: Path) -> None:
    """Others in the file are not believed: the log may have been truncated since."""
    async with leading(tmp_path) as (one, log, _):
        log.begin_term(3, ("a",))
        kept = EpochHistory((FOUNDED, Epoch(2, 10), Epoch(3, 20), Epoch(9, 1 << 30)))
        assert bytes_of(one).epochs(kept) == EpochHistory((FOUNDED, Epoch(3, 0)))


async def test_sends_wait_until_the_log_is_committed(tmp_path: Path) -> None:
    """And are visible only then; own sync or not."""
    copies = LinkCopies(3_000, 0, lambda end, then: then(None))
    async with leading(tmp_path, copies) as (one, log, events):
        end = log.begin_term(1, ("a",)).end
        log.show(end)
        assert log.is_shown
        [append] = one.put(message(b"hello"))
        end = one.store.max_physical_offset
        await until(lambda: Synced(end) in events)
        assert append.status is PutStatus.PENDING
        assert one.bodies() == []
        log.show(end)
        assert not one.store.flush.is_settled()
        copies.settle()
        assert one.store.flush.is_settled()
        assert one.bodies() == [b"hello"]
        assert append.status.name == "PUT_OK"


async def test_properties_with_zeros_are_synced_once_that_is_written_down(tmp_path: Path) -> None:
    """A recovery would take such a record for a torn one. Later commits wait behind it."""
    keeping: list[tuple[int, Callable[[OSError | None], None]]] = []
    copies = LinkCopies(3_000, 0, lambda end, then: keeping.append((end, then)))
    async with leading(tmp_path, copies) as (one, log, events):
        log.show(log.begin_term(1, ("a",)).end)
        one.put(message(b"odd", properties=b"k\x01\0"))
        await until(lambda: keeping)
        one.put(message(b"later"))
        end = one.store.max_physical_offset
        await until(lambda: one.store.flushed_offset == end)
        await until(lambda: copies._flushed == end)
        assert not [event for event in events if isinstance(event, Synced) and event.end > keeping[0][0] - 1]
        keeping[0][1](None)
        assert Synced(end) in events
        one.put(message(b"odd again", properties=b"k\x01\0"))
        await until(lambda: len(keeping) == 2)
        keeping[1][1](OSError("broken"))
        assert SyncFailed() in events


async def test_an_epoch_record_follows_the_last_record_in_its_segment(tmp_path: Path) -> None:
    """Messages leave room for it: a blank in front of it would be of no known epoch."""
    async with leading(tmp_path) as (one, log, _):
        log.begin_term(1, ("a",))
        while one.store.max_physical_offset + 900 < SEGMENT_BYTES * 3 // 4:
            one.put(message(bytes(700)))
        before = one.store.max_physical_offset
        assert log.begin_term(2, ("a",)).epochs == (Epoch(2, before),)
        [rolled] = one.put(message(bytes(700)))
        assert rolled.physical_offset == SEGMENT_BYTES


FITS = ("a",)
LONG = ("a" * 800,)


async def fill_with_terms(root: Path) -> int:
    """Use up the room for epoch records: FITS has room, and LONG has none. Return the end of the log."""
    async with leading(root) as (one, log, _):
        epoch = 1
        while one.store.max_physical_offset + 700 < SEGMENT_BYTES:
            log.begin_term(epoch, FITS)
            epoch += 1
        assert epoch > 50
        return one.store.max_physical_offset


async def ended_by(root: Path, epoch: int, in_sync: tuple[str, ...]) -> tuple[bytes, EpochHistory]:
    """Begin another term, and send a message in it. Return the log and its epochs."""
    async with leading(root) as (one, log, _):
        log.begin_term(epoch, in_sync)
        assert one.put(message(b"of epoch %d" % epoch))[0].physical_offset >= SEGMENT_BYTES
        source = bytes_of(one)
        data = b"".join(bytes(source.view(at, SEGMENT_BYTES)) for at in (0, SEGMENT_BYTES))
    with opened(root) as again:
        epochs = bytes_of(again).epochs(EpochHistory())
    return data, epochs


@pytest.mark.parametrize(
    ("theirs", "ours", "is_rolled"), [(LONG, LONG, True), (LONG, FITS, False), (FITS, LONG, False)]
)
async def test_terms_beyond_the_room_in_a_segment_begin_in_the_next_one(
    tmp_path: Path, theirs: tuple[str, ...], ours: tuple[str, ...], is_rolled: bool
) -> None:
    """After many terms without a message. A copy of one log then follows another one, in which a later term begins in
    the other segment: it goes back to where they begin to differ, and its log equals that of its leader."""
    room = await fill_with_terms(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    data, epochs = await ended_by(tmp_path / "a", 1_000, theirs)
    assert epochs.entries[-1] == Epoch(1_000, room if theirs is FITS else SEGMENT_BYTES)
    leaders, history = await ended_by(tmp_path / "b", 1_001, ours)
    with opened(tmp_path / "copy", sync=True, is_follower=True, loop=asyncio.get_running_loop()) as copy:
        replica = follower_log(copy, [])
        assert replica.write(0, data).epochs == epochs.entries
        replica.show(room)
        start = epochs.common_end(len(data), history, len(leaders))
        assert start == (SEGMENT_BYTES if is_rolled else room)
        replica.set_end(start)
        assert replica.write(start, leaders[start:]).epochs == history.entries[-1:]
        await until(lambda: copy.store.flushed_offset == len(leaders))
        while not replica.show(len(leaders)):
            pass
        assert copy.bodies() == [b"of epoch 1001"]
        source = bytes_of(copy)
        assert b"".join(bytes(source.view(at, SEGMENT_BYTES)) for at in (0, SEGMENT_BYTES)) == leaders
        assert source.epochs(EpochHistory()) == history


async def test_a_blocked_store_takes_only_the_epoch_record(tmp_path: Path) -> None:
    """A store that refuses messages for another reason does not take it: no term begins."""
    async with leading(tmp_path) as (one, log, _):
        one.store.leader_block.set("too few")
        assert one.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        log.begin_term(1, ("a",))
        assert one.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "too few" in one.store.flags.reasons()
        one.store.leader_block.set("")
        assert one.put(message())[0].status is PutStatus.PENDING
    log = LeaderLog(one.store, "n1", BORN_HOST, None, one.clock)
    with pytest.raises(TermFailed, match="the store is not open"):
        log.begin_term(2, ("a",))


@pytest.mark.parametrize("is_compiled", [False, True])
async def test_catch_up_sends_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    """At least one, however small the range; and the zeros behind the blank of a segment."""
    if not is_compiled:
        monkeypatch.setattr(store_log, "_compiled", None)
    async with leading(tmp_path) as (one, _, _):
        one.put(*(message(bytes(size)) for size in (100, 50, 40_000, 30_000)))
        source = bytes_of(one)
        sizes = [append.size for append in one.put(message(b"x"))]
        first, second = (len(source.view(0, 1 << 20)), source.segment_end(0))
        assert first == second == SEGMENT_BYTES
        part = source.file_range(0, 1 << 20)
        try:
            assert part.size == SEGMENT_BYTES
            assert source.whole_records(part) == SEGMENT_BYTES
            record = source.whole_records(part._replace(size=10))
            assert record == source.whole_records(part._replace(size=record + 5)) < 300
            assert source.whole_records(part._replace(size=SEGMENT_BYTES - 1)) < SEGMENT_BYTES - 8
        finally:
            os.close(part.fd)
        assert len(source.view(SEGMENT_BYTES, 1 << 20)) == one.store.max_physical_offset - SEGMENT_BYTES > sizes[0]
        with pytest.raises(OSError, match="has no byte"):
            source.view(one.store.max_physical_offset, 10)


def test_bytes_that_are_no_record_are_not_sent(tmp_path: Path) -> None:
    """The follower could not tell them from records."""
    (tmp_path / "zeros").write_bytes(bytes(100))
    with (tmp_path / "zeros").open("rb") as file, opened(tmp_path / "store") as one:
        part = FileRange(file.fileno(), 0, 100)
        with pytest.raises(OSError, match="no record at byte 0"):
            bytes_of(one).whole_records(part)


@pytest.mark.parametrize("size", [1 << 20, 1_000, 37])
async def test_a_follower_finds_the_epochs_in_the_bytes_of_the_leader(tmp_path: Path, size: int) -> None:
    """In pieces of any size; a body that contains the topic's name is none."""
    async with leading(tmp_path / "leader") as (one, log, _):
        log.begin_term(1, ("a",))
        one.put(message(EPOCH_TOPIC.encode() * 3), message(bytes(40_000)), message(bytes(40_000)))
        second = log.begin_term(2, ("a",)).epochs[0]
        one.put(message(b"last"))
        source = bytes_of(one)
        data = b"".join(bytes(source.view(at, SEGMENT_BYTES)) for at in (0, SEGMENT_BYTES))
    events: list[Event] = []
    with opened(tmp_path / "follower", sync=True, is_follower=True, loop=asyncio.get_running_loop()) as copy:
        replica = follower_log(copy, events)
        found: list[Epoch] = []
        written = Written(0)
        for at in range(0, len(data), size):
            written = replica.write(at, data[at : at + size])
            found += written.epochs
            replica.show(at)
        assert found == [Epoch(1, 0), second]
        assert written.end == len(data)
        await until(lambda: Synced(len(data)) in events)
        replica.show(len(data))
        assert copy.bodies()[-1:] == [b"last"]
        assert bytes_of(copy).epochs(EpochHistory()) == EpochHistory((Epoch(1, 0), second))


async def test_bytes_with_an_epoch_are_not_copied_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch has to be in its file before they are acknowledged. An epoch that begins behind them is found."""
    monkeypatch.setattr(log_flush, "_LONG_S", 60)  # no disk is so slow that the loop leaves the sync to the flusher
    async with leading(tmp_path / "leader") as (one, log, _):
        log.begin_term(1, ("a",))
        first = one.store.max_physical_offset
        one.put(message(b"of epoch 1"))
        second = log.begin_term(2, ("a",)).epochs[0]
        data = bytes(bytes_of(one).view(0, SEGMENT_BYTES))
    events: list[Event] = []
    with opened(tmp_path / "follower", sync=True, is_follower=True, loop=asyncio.get_running_loop()) as copy:
        replica = follower_log(copy, events)
        assert replica.copy(0, data[:first]) is None
        replica.write(0, data[:first])
        assert replica.copy(first, data[first : second.start]) is None  # the bytes before are not synced
        await until(lambda: Synced(first) in events)
        assert replica.copy(first, data[first : second.start]) == second.start
        assert replica.copy(second.start, data[second.start :]) is None
        assert replica.write(second.start, data[second.start :]).epochs == (second,)
        assert Synced(second.start) not in events
        await until(lambda: Synced(len(data)) in events)
        replica.show(len(data))


async def test_an_epoch_is_found_without_a_look_at_earlier_bytes(tmp_path: Path) -> None:
    """While a follower catches up, what it shows may end gigabytes before the frame with the epoch record."""
    async with leading(tmp_path) as (one, log, _):
        one.put(message(EPOCH_TOPIC.encode()), message(b"before"))
        start = one.store.max_physical_offset
        epochs = log.begin_term(2, ("a",)).epochs
        source = bytes_of(one)
        seen: list[int] = []

        class Noted(StoreBytes):
            def view(self, offset: int, size: int) -> memoryview:
                seen.append(offset)
                return super().view(offset, size)

        scan = EpochScan(Noted(one.store, SEGMENT_BYTES), 0)
        assert scan.appended(memoryview(source.view(start, SEGMENT_BYTES)), 0) == epochs
        assert min(seen) == start


@pytest.mark.parametrize("before", [0, 1, 65_500, 65_515, 65_525, 65_536, 131_000, 200_000])
def test_the_topic_is_found_anywhere_in_a_view(before: int) -> None:
    """Also where two pieces of the search meet."""
    topic = EPOCH_TOPIC.encode()
    data = bytes(before) + topic + bytes(70_000)
    assert _has_topic(memoryview(data))
    assert not _has_topic(memoryview(data.replace(topic, topic[:-1])))


async def test_bytes_that_do_not_continue_the_log_stop_the_node(tmp_path: Path) -> None:
    """So do bytes that are no records, once they would become visible."""
    with opened(tmp_path, sync=True, is_follower=True, loop=asyncio.get_running_loop()) as copy:
        replica = follower_log(copy, [])
        with pytest.raises(DamagedLogError, match="do not continue the log"):
            replica.write(100, b"x")
        replica.write(0, b"y" * 1_000)
        with pytest.raises(DamagedLogError, match="damaged"):
            replica.show(1_000)
        copy.must_be_consistent = False


@pytest.mark.parametrize("is_truncated", [False, True])
async def test_known_epochs_are_not_found_again(tmp_path: Path, *, is_truncated: bool) -> None:
    """A follower restarts or truncates its log with an epoch record above its committed mark. Then a term begins."""
    async with leading(tmp_path / "leader") as (one, log, _):
        log.begin_term(1, ("a",))
        log.begin_term(2, ("a",))
        known = one.store.max_physical_offset
        one.put(message(b"of epoch 2"))
        kept = known if is_truncated else one.store.max_physical_offset
        third = log.begin_term(3, ("a",)).epochs[0]
        data = bytes(bytes_of(one).view(0, SEGMENT_BYTES))
    with opened(tmp_path / "follower", sync=True, is_follower=True, loop=asyncio.get_running_loop()) as copy:
        before = follower_log(copy, [])
        before.write(0, data[: third.start])
        after = before if is_truncated else follower_log(copy, [])
        after.set_end(kept)
        assert after.write(kept, data[kept:]).epochs == (third,)
        after.show(len(data))


async def test_a_failed_sync_of_the_leader_reaches_the_core(tmp_path: Path) -> None:
    """Once: its store may lack bytes that count as synced, so it leaves the set."""
    async with leading(tmp_path, LinkCopies(3_000, 0, lambda end, then: then(None))) as (one, log, events):
        log.begin_term(1, ("a",))

        def refuse(call: str, path: str) -> None:
            if call == "fdatasync" and "/commitlog/" in path:
                raise OSError(errno.EIO, "Input/output error")

        one.disk.refuse = refuse
        one.put(message(b"lost"))
        await until(lambda: SyncFailed() in events)
        one.store.step(one.clock.now_ms)
        assert events.count(SyncFailed()) == 1
        one.must_be_consistent = False
