"""The expected state of a store: what was sent, acknowledged and read, compared with the store after a crash.

    prefix     the log contains the first n records that were written, in order, and nothing else
    start      of these n, only records of removed segments are missing; removed records stay removed
    floor      n covers everything that was acknowledged under SYNC_FLUSH, that a consumer read under it, that a flusher
               reported as durable, and that an earlier recovery found after a power cut
    queues     each unit is that of a record in the log, at its queue offset; below the floor each record has one. A
               queue begins with the first of its records, and continues after the last that it ever had. A record above
               the floor stays in its queue, or stays skipped: a gap is where such a record was
    index      its items are the keys of the log's records, each once, in order; before them, some of removed records
    state      a state file has the content of the last save, or of a save in progress

Below the floor a record is compared completely. Above it, a torn record head cannot be detected in this format
(docs/reference/disk.md, "Checking one record"): there, the content of the log counts from then on.
"""

from typing import NamedTuple

from skylarkmq.broker.store.files.record_rules import RECORD_FLAGS, has_unit
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.queue_reads import GetResult
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, index_hash, index_keys, is_indexed
from skylarkmq.protocol.record import HOST_FLAGS, Record, iterate
from tests.harness.stores import records_of


class Stored(NamedTuple):
    """A record as it was sent, or as it is in the log."""

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
        position = f"{self.topic}/{self.queue_id} #{self.queue_offset}"
        return f"<{position} at={self.at} size={self.size} sys_flag={self.sys_flag} body={self.body[:8]!r}>"

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


class ExpectedState:
    """The expected state of one store over all its sessions. Offsets are in bytes of the log."""

    def __init__(self, *, is_sync: bool) -> None:
        self._is_sync = is_sync
        self._log: list[Stored] = []
        self._gone: list[Stored] = []  # records before the start of the log
        self._start = 0  # start of the log at the last check
        self._given_up = 0  # maximum start of the log now
        self._floor = 0
        self._unsynced_floor = 0  # the end of a process alone loses nothing that was written
        self._waiting: list[Append] = []
        self._deletions: dict[str, list[int]] = {}  # topic -> possible starts of its records
        self._skipped: set[int] = set()  # positions of records without the unit that their flags require
        self._saves = [0]  # possible contents of the state file; 0: no file

    # events

    def write(self, appends: list[Append], sys_flag: int = 0) -> None:
        """Record appends that are about to be written; `sys_flag`: bits that each record has in addition."""
        self._log += [Stored.of_append(append, sys_flag) for append in appends]

    def written(self, appends: list[Append]) -> None:
        """Record that the write has returned."""
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
        """Record acknowledgments that may have arrived; the flusher has reported everything below `durable` as
        durable."""
        self._floor = max(self._floor, durable)
        waiting, self._waiting = self._waiting, []
        for append in waiting:
            if append.status is PutStatus.PENDING:
                self._waiting.append(append)
            elif self._is_sync and append.wait_flush and append.status is PutStatus.PUT_OK:
                self._floor = max(self._floor, append.physical_offset + append.size)

    def seen(self, result: GetResult, offset: int) -> None:
        """Record what a consumer has read."""
        for record in records_of(result):
            stored = Stored.of_record(record)
            assert stored in self._log, f"never sent: {stored}"
            assert stored.queue_offset >= offset  # there may be a gap
            offset = stored.queue_offset + 1
            if self._is_sync:
                self._floor = max(self._floor, stored.end)

    def stopped(self) -> None:
        """Record a clean stop: everything is durable."""
        self._waiting.clear()
        self._floor = self._unsynced_floor

    def killed(self) -> None:
        """Record the end of the process; the kernel still has all written data."""
        self._waiting.clear()

    def cut(self) -> None:
        """Record a power cut: unsynced data may be lost."""
        self._waiting.clear()
        self._unsynced_floor = self._floor

    def delete(self, topic: str, end: int) -> None:
        """Record that the deletion of a topic is about to begin; `end` is the end of the log."""
        self._deletions.setdefault(topic, [0]).append(end)

    def deleted(self, topic: str, end: int) -> None:
        """Record that the deletion has returned; `end` 0: there was nothing to delete."""
        tried = self._deletions[topic]
        self._deletions[topic] = [end] if end else tried[:-1]

    def expire(self, start: int) -> None:
        """Record that the log begins at `start`; until the next start this may be undone."""
        self._given_up = max(self._given_up, start)

    def save(self, number: int) -> None:
        """Record that a save of the state file is about to begin."""
        self._saves.append(number)

    def saved(self, number: int) -> None:
        """Record that the save has returned."""
        self._saves = [number]

    def loaded(self, number: int | None) -> None:
        """Check the content of the state file at a start."""
        assert (number or 0) in self._saves, f"the state file contains {number}, not one of {self._saves}"
        self._saves = [number or 0]

    # checks

    def check(self, store: MessageStore) -> None:
        """Check a store that was just loaded. Raises AssertionError for a violation."""
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
        for topic in {record.topic for record in every} | {queue.topic for queue in store.queues.by_key.values()}:
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
        """Check that the queues match one of the possible ends of the topic's deletion."""
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
        """Return the positions of records without the unit that their flags require."""
        by_queue: dict[tuple[str, int], list[Stored]] = {}
        for record in records:
            if has_unit(record.sys_flag):
                by_queue.setdefault((record.topic, record.queue_id), []).append(record)
        skipped: set[int] = set()
        for key, queue in store.queues.by_key.items():
            if key[0] == topic:
                skipped |= self._check_queue(queue, by_queue.pop(key, []), owed_below)
        left = [record for rest in by_queue.values() for record in rest]
        vanished = [record for record in left if record.at < self._start and record.at not in self._skipped]
        assert not vanished, f"no queue continues where {vanished[-1]} ended"
        left_over = {record.at: record for record in left if record.at >= self._start}
        lost = [record for at, record in left_over.items() if record.end <= owed_below and at not in self._skipped]
        assert not lost, f"no queue for {lost}"
        return skipped | set(left_over)

    def _check_queue(self, queue: ConsumeQueue, ever: list[Stored], owed_below: int) -> set[int]:
        """Check that units and records agree, that owed records have a unit, and that gaps are only at other
        records."""
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
    """Return every record of a loaded store's log; check that nothing follows its end."""
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
            assert not any(segment.view[last_at:]), f"there is data after the end in {segment!r}"
    assert end == store.max_physical_offset, f"log ends at {end}, the store reports {store.max_physical_offset}"
    return records


def keys_of(records: list[Stored]) -> list[tuple[int, int]]:
    """Return hash and position of every key that the index must contain."""
    return [
        (index_hash(f"{record.topic}#{key.decode('utf-8', 'replace')}"), record.at)
        for record in records
        if is_indexed(record.sys_flag)
        for key in index_keys(record.properties)
    ]


def items_of(store: MessageStore) -> list[tuple[int, int]]:
    """Return hash and position of every item of the index of a loaded store."""
    assert store._parts.index is not None
    index = store._parts.index.index
    assert not index.waiting
    return [file.item(number)[:2] for file in index.files for number in range(1, file.header.next_item)]
