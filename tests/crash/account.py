"""What a store owes: the account of what was sent, acknowledged and seen, held against what is there after a crash.

    prefix     the log holds the first n records that were written, in their order, and nothing else
    start      of these n, only records of segments that the store gave up are missing; what was gone stays gone
    floor      n covers everything that was acknowledged under SYNC_FLUSH, that a consumer saw under it, that a flusher
               called durable, and that an earlier recovery found after a power cut
    queues     each unit is that of a record in the log, at its queue offset; below the floor each record has one. A
               queue begins with the first of its records, and goes on behind the last that it ever had. What a record
               above the floor became, in its queue or skipped, it stays: a hole is where such a record was
    index      its items are the keys of the log's records, each once, in order; before them, some of records given up
    state      a state file holds what was saved last, or a save that was under way

Below the floor a record is compared whole. Above it, what tears in a record's head cannot be seen in this format
(docs/formats.md, "Checking one record"): there, what the log says counts from then on.
"""

from typing import NamedTuple

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.record_rules import RECORD_FLAGS, has_unit
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.queue_reads import GetResult
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, index_hash, index_keys, is_indexed
from skylarkmq.protocol.record import HOST_FLAGS, Record, iterate
from tests.harness.stores import records_of


class Stored(NamedTuple):
    """A record as it was sent, or as the log tells it."""

    at: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    body: bytes
    properties: bytes

    @property
    def end(self) -> int:
        return self.at + self.size

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id} #{self.queue_offset}"
        return f"<{place} at={self.at} size={self.size} sys_flag={self.sys_flag} body={self.body[:8]!r}>"

    @classmethod
    def of_append(cls, append: Append, sys_flag: int = 0) -> "Stored":
        return cls(
            append.physical_offset,
            append.size,
            append.topic,
            append.queue_id,
            append.queue_offset,
            append.sys_flag & RECORD_FLAGS | sys_flag,
            bytes(append.body),
            append.properties,
        )

    @classmethod
    def of_record(cls, record: Record) -> "Stored":
        return cls(
            record.physical_offset,
            record.size,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.sys_flag & ~HOST_FLAGS,
            bytes(record.body),
            record.properties,
        )


class Account:
    """The account of one store over all its lives. Offsets in bytes of the log."""

    def __init__(self, *, is_sync: bool) -> None:
        self._is_sync = is_sync
        self._log: list[Stored] = []
        self._gone: list[Stored] = []  # records in front of the log
        self._start = 0  # where the log began at the last check
        self._given_up = 0  # where it may begin by now
        self._floor = 0
        self._unsynced_floor = 0  # what a process may lose by its own end: nothing that was written
        self._waiting: list[Append] = []
        self._deletions: dict[str, list[int]] = {}  # topic -> where its records may begin: that byte, or one of these
        self._skipped: set[int] = set()  # where the records stand that have no unit, though their flags say so
        self._saves = [0]  # possible contents of the state file; 0: none

    # what happens

    def write(self, appends: list[Append], sys_flag: int = 0) -> None:
        """These are about to be written; each record has these bits besides those of its message."""
        self._log += [Stored.of_append(append, sys_flag) for append in appends]

    def written(self, appends: list[Append]) -> None:
        """The write came back."""
        if self._log:
            self._unsynced_floor = max(self._unsynced_floor, self._log[-1].end)
        self._waiting += appends
        if self._is_sync:
            expected = {PutStatus.PENDING, PutStatus.PUT_OK}
            assert {one.status for one in appends} <= expected
            assert all(one.wait_flush is False for one in appends if one.status is PutStatus.PUT_OK)
        else:
            assert {one.status for one in appends} <= {PutStatus.PUT_OK}

    def settled(self, durable: int) -> None:
        """Acknowledgements may have arrived; the flusher calls everything below `durable` safe."""
        self._floor = max(self._floor, durable)
        waiting, self._waiting = self._waiting, []
        for append in waiting:
            if append.status is PutStatus.PENDING:
                self._waiting.append(append)
            elif self._is_sync and append.wait_flush and append.status is PutStatus.PUT_OK:
                self._floor = max(self._floor, append.physical_offset + append.size)

    def seen(self, result: GetResult, offset: int) -> None:
        """A consumer got this."""
        for record in records_of(result):
            stored = Stored.of_record(record)
            assert stored in self._log, f"never sent: {stored}"
            assert stored.queue_offset >= offset  # there may be a hole
            offset = stored.queue_offset + 1
            if self._is_sync:
                self._floor = max(self._floor, stored.end)

    def stopped(self) -> None:
        """A clean stop: everything is safe."""
        self._waiting.clear()
        self._floor = self._unsynced_floor

    def killed(self) -> None:
        """The process ended; the kernel still has all that was written."""
        self._waiting.clear()

    def cut(self) -> None:
        """The power went: what was not safe may be gone."""
        self._waiting.clear()
        self._unsynced_floor = self._floor

    def delete(self, topic: str, end: int) -> None:
        """A topic's deletion is about to begin; the log ends there."""
        self._deletions.setdefault(topic, [0]).append(end)

    def deleted(self, topic: str, end: int) -> None:
        """It came back; `end` 0: there was nothing to delete."""
        tried = self._deletions[topic]
        self._deletions[topic] = [end] if end else tried[:-1]

    def expire(self, start: int) -> None:
        """The store lets its log begin there; until the next start nobody says whether that lasts."""
        self._given_up = max(self._given_up, start)

    def save(self, number: int) -> None:
        """A save of the state file is about to begin."""
        self._saves.append(number)

    def saved(self, number: int) -> None:
        """It came back."""
        self._saves = [number]

    def loaded(self, number: int | None) -> None:
        """What the state file says at a start."""
        assert (number or 0) in self._saves, f"the state file says {number}, not one of {self._saves}"
        self._saves = [number or 0]

    # what must hold

    def check(self, store: MessageStore) -> None:
        """AssertionError with what does not hold, for a store that was just loaded."""
        floor = max(self._floor, self._unsynced_floor)
        records = log_of(store)
        start = store.min_physical_offset
        assert self._start <= start <= self._given_up, f"begins at {start}, not {self._start} to {self._given_up}"
        self._start = self._given_up = start
        self._gone += [record for record in self._log if record.at < start]
        self._log = [record for record in self._log if record.at >= start]
        for owed, found in zip(self._log, records, strict=False):
            assert (found.at, found.size, found.body) == (owed.at, owed.size, owed.body), f"{found} instead of {owed}"
            if owed.end <= floor:
                assert found == owed, f"{found} instead of {owed}"
        assert len(records) <= len(self._log), f"never sent: {records[len(self._log)]}"
        lost = [owed for owed in self._log[len(records) :] if owed.end <= floor]
        assert not lost, f"lost below {floor}: {lost[0]}"
        self._log = records
        self._unsynced_floor = max(floor, records[-1].end if records else 0)
        every = [*self._gone, *records]
        skipped = {at for at in self._skipped if at < start}
        for topic in {record.topic for record in every} | {queue.topic for queue in store._queues.by_key.values()}:
            skipped |= self._check_topic(store, topic, [record for record in every if record.topic == topic], floor)
        self._skipped = skipped
        items = items_of(store)
        assert [item for item in items if item[1] >= start] == keys_of(records)
        gone = iter(keys_of(self._gone))
        assert all(item in gone for item in items if item[1] < start), "items of no record, or out of order"
        assert items == sorted(items, key=lambda item: item[1])
        log_end = store.max_physical_offset
        self._deletions = {topic: [min(end, log_end) for end in ends] for topic, ends in self._deletions.items()}

    def _check_topic(self, store: MessageStore, topic: str, records: list[Stored], floor: int) -> set[int]:
        """The queues are those of one possible end of its deletion."""
        problems = []
        for end in self._deletions.get(topic, [0]):
            try:
                skipped = self._check_queues(store, topic, [one for one in records if one.at >= end], floor)
            except AssertionError as problem:
                problems.append(problem)
            else:
                self._deletions[topic] = [end]
                return skipped
        raise problems[-1]

    def _check_queues(self, store: MessageStore, topic: str, records: list[Stored], owed_below: int) -> set[int]:
        """Returns where the records stand that have no unit, though their flags say so."""
        by_queue: dict[tuple[str, int], list[Stored]] = {}
        for record in records:
            if has_unit(record.sys_flag):
                by_queue.setdefault((record.topic, record.queue_id), []).append(record)
        skipped: set[int] = set()
        for key, queue in store._queues.by_key.items():
            if key[0] == topic:
                skipped |= self._check_queue(queue, by_queue.pop(key, []), owed_below)
        left = [record for rest in by_queue.values() for record in rest]
        vanished = [record for record in left if record.at < self._start and record.at not in self._skipped]
        assert not vanished, f"no queue goes on where {vanished[-1]} ended"
        left_over = {record.at: record for record in left if record.at >= self._start}
        lost = [record for at, record in left_over.items() if record.end <= owed_below and at not in self._skipped]
        assert not lost, f"no queue for {lost}"
        return skipped | set(left_over)

    def _check_queue(self, queue: ConsumeQueue, ever: list[Stored], owed_below: int) -> set[int]:
        """Units and records agree; what is owed has its unit; a hole is where no owed record was."""
        units = {offset: queue.unit(offset) for offset in range(queue.min_offset, queue.end)}
        of_record = {unit[0]: offset for offset, unit in units.items() if unit and unit[1] != FILLER_RECORD_SIZE}
        there = [record for record in ever if record.at >= self._start]
        kept = [record for record in there if record.at in of_record]
        assert len(kept) == len(of_record), f"units of no record in {queue!r}: {units}, {ever}"
        for record in kept:
            offset = of_record[record.at]
            unit = units[offset]
            assert unit is not None
            assert (record.queue_offset, unit[:2]) == (offset, (record.at, record.size)), f"{queue!r} at {offset}"
        skipped = {record.at for record in there} - of_record.keys()
        bad = [one for one in there if one.at in skipped and one.end <= owed_below and one.at not in self._skipped]
        assert not bad, f"owed, and not in {queue!r}: {bad}"
        assert not (self._skipped & of_record.keys()), f"skipped before, and now in {queue!r}"
        gone = [record for record in ever if record.at < self._start and record.at not in self._skipped]
        end = kept[-1].queue_offset + 1 if kept else gone[-1].queue_offset + 1 if gone else 0
        begin = kept[0].queue_offset if kept else end
        assert (queue.min_offset, queue.end, queue.next_offset) == (begin, end, end), f"{queue!r}: {ever}"
        return skipped


def log_of(store: MessageStore) -> list[Stored]:
    """Every record of a loaded store's log; behind its end there is nothing."""
    records: list[Stored] = []
    end = store.min_physical_offset
    for segment in store._log.files.segments:
        last_at = 0
        for found in iterate(segment.view):
            last_at = -1
            if isinstance(found, Record):
                records.append(Stored.of_record(found))
                end = found.physical_offset + found.size
                last_at = found.position + found.size
        if last_at >= 0:
            assert not any(segment.view[last_at:]), f"something stands behind the end in {segment!r}"
    assert end == store.max_physical_offset, f"log ends at {end}, the store says {store.max_physical_offset}"
    return records


def keys_of(records: list[Stored]) -> list[tuple[int, int]]:
    """Hash and place of every key that the index owes."""
    return [
        (index_hash(f"{record.topic}#{key.decode('utf-8', 'replace')}"), record.at)
        for record in records
        if is_indexed(record.sys_flag)
        for key in index_keys(record.properties)
    ]


def items_of(store: MessageStore) -> list[tuple[int, int]]:
    """Hash and place of every item of the index, which a loaded store has put."""
    assert store._index is not None
    index = store._index.index
    assert not index.waiting
    return [file.item(number)[:2] for file in index.files for number in range(1, file.header.next_item)]
