"""Decides which records of the log get a unit in their queue: one rule for recovery, `store verify`, `store repair`.

Only the body of a record has a checksum. A power cut can tear the head of a record that was never acknowledged: the
record looks whole, but its queue offset, topic, queue id or flags are not those that were written. Later records of the
same process life were not acknowledged either, because a sync covers everything written before it. Later lives continue
each queue where the recovery in between left it. So a queue's records are judged in the order of the log. Let `next` be
the offset after the queue's last record:

    offset = next   gets its unit. Older versions gave some records (sysFlag 0x80) an offset and no unit. Such a record
                    may have been counted or not: it is undecided until the queue's next record
    offset > next   is undecided. It gets its unit if the queue's next record in the log has offset + 1, or if the
                    queue's unit at that offset already belongs to this record. The log between the two records must
                    have space for all missing records (91 bytes each). The offsets between them become a gap
    offset < next   gets no unit. Exception, offset 0: the topic was deleted and created again if a record with offset 1
                    follows, or if the queue's unit 0 belonged to this record. After a single record with offset 0, a
                    record with offset 1 belongs to the older one

An undecided record without a later record of its queue is skipped (an old 0x80 record is counted). The next life then
appends with `next`, which leads all later recoveries to the same decision.

A skipped record stays in the log and gets no unit; it is counted and logged. No acknowledged record is ever skipped:
everything before it is intact, so it continues its queue.

`Evidence` supplies the state of a queue before its first judged record. Without evidence, that record is accepted.

Source: docs/reference/disk.md, "Recovery".
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import structs

from skylarkmq.broker.store.files.record_rules import INNER_BATCH, is_inner_batch, may_have_queue
from skylarkmq.protocol.record import SMALLEST_RECORD, Record

Key: TypeAlias = tuple[str, int]
"""Topic and queue id."""

_BATCH: Final = "a batch in one record, of a topic with queues of another type"

Skipped: TypeAlias = Callable[[Record, str], None]
"""Called with each record that gets no unit, and the reason."""


class QueuePrefix(msgspec.Struct, frozen=True):
    """The state of a queue before its first judged record.

    `next`: the offset after its last record, which ends at byte `log_end`. Not `is_sure`: its last units may be torn
    units of later records.
    """

    next: int
    log_end: int
    is_sure: bool = True


EMPTY_PREFIX: Final = QueuePrefix(0, 0)
"""The prefix of every queue of a log that begins at byte 0."""


class Evidence(Protocol):
    """The evidence in the files of queues."""

    def unit(self, key: Key, offset: int) -> tuple[int, int] | None:
        """Return physical offset and size in a queue's unit, or None without such a unit."""

    def prefix(self, record: Record) -> QueuePrefix | None:
        """Return the state of a record's queue before the first judged byte; None without evidence."""


class ScanStartTooLateError(Exception):
    """A queue lacks units of records from before the first judged byte."""


class Chain(msgspec.Struct, gc=False):
    """The records of one queue: those with a unit have offsets [`first`, `next`). `first` -1: there are none yet."""

    first: int
    next: int
    window: int  # a record with an offset up to this one continues the queue
    log_end: int  # end of the last record in the log
    first_unit: int = -1  # physical offset in the original unit of offset 0
    undecided: Record | None = None
    may_lack_units: bool = False  # units of records from before the first judged byte
    is_confirmed_by_unit: bool = False  # the last record was accepted because of its unit

    def extend(self, end: int, log_end: int) -> None:
        """Take records with all offsets up to `end`, the last of which ends at byte `log_end`."""
        self.next = self.window = end
        self.log_end = log_end
        self.is_confirmed_by_unit = self.may_lack_units = False


class QueueOrder:
    """Judges the records of the log, fed in order.

    `accept` is called with each record that gets a unit and the first offset of the gap before it; records of one queue
    arrive in order. `may_go_back`: the log has records before the judged ones. ScanStartTooLateError is raised if a
    queue lacks their units; with `trusts_units` only for a queue that has no units at all.
    """

    def __init__(
        self,
        evidence: Evidence,
        accept: Callable[[Record, int], None],
        skipped: Skipped,
        *,
        may_go_back: bool = False,
        trusts_units: bool = False,
    ) -> None:
        self._evidence = evidence
        self._accept = accept
        self._skipped = skipped
        self._may_go_back = may_go_back
        self._trusts_units = trusts_units
        self.chains: dict[Key, Chain] = {}
        self.undecided: set[int] = set()
        """The physical offsets of all undecided records."""
        self._may_jump: set[Key] = set()
        self._has_gap = False

    def pass_gap(self) -> None:
        """Handle a gap in the log: the next record of each queue may have any later offset."""
        self._may_jump.update(self.chains)
        self._has_gap = True
        self._may_go_back = False

    def add(self, record: Record) -> None:
        """Judge the next record that belongs to a queue, by its flags and topic."""
        chain = self.chains.get((record.topic, record.queue_id))
        if chain is None:
            self._begin(record)
        elif record.queue_offset == chain.next and chain.undecided is None and not record.sys_flag & INNER_BATCH:
            self._take(chain, record)
        else:
            self._continue(chain, record)

    def continuable(self, topic: str, queue_id: int) -> Chain | None:
        """Return the chain of a queue if the next offset continues it without further evidence."""
        chain = self.chains.get((topic, queue_id))
        is_certain = chain is not None and chain.first >= 0 and chain.undecided is None and not self._may_jump
        return chain if is_certain else None

    def recall(self, record: Record) -> None:
        """Begin a queue with a record from before the judged ones that is undecided. Its predecessors have units."""
        if (record.topic, record.queue_id) in self.chains:
            self.add(record)
            return
        prefix = self._prefix(record) or EMPTY_PREFIX
        if prefix.log_end <= record.physical_offset:
            chain = Chain(-1, prefix.next, prefix.next, prefix.log_end)
            self.chains[record.topic, record.queue_id] = chain
            self._wait(chain, record)

    def finish(self) -> None:
        """Decide all undecided records at the end of the log."""
        for chain in self.chains.values():
            undecided = self._take_undecided(chain)
            if undecided is None:
                continue
            if undecided.queue_offset == chain.next:
                self._take(chain, undecided)
            elif chain.may_lack_units and undecided.queue_offset > chain.window:
                raise ScanStartTooLateError(_lack_message(undecided, chain))
            else:
                self._skip(chain, undecided)

    def pause(self) -> None:
        """End the scan, and leave undecided records undecided. Raises ScanStartTooLateError as `finish` does."""
        for chain in self.chains.values():
            undecided = chain.undecided
            if undecided is not None and chain.may_lack_units and undecided.queue_offset > chain.window:
                raise ScanStartTooLateError(_lack_message(undecided, chain))

    def copied(self, accept: Callable[[Record, int], None], skipped: Skipped) -> "QueueOrder":
        """Return a copy that judges the records after those judged here."""
        order = QueueOrder(
            self._evidence, accept, skipped, may_go_back=self._may_go_back, trusts_units=self._trusts_units
        )
        order.chains = {key: structs.replace(chain) for key, chain in self.chains.items()}
        order._may_jump = set(self._may_jump)
        order._has_gap = self._has_gap
        order.undecided = set(self.undecided)
        return order

    def continued(self, evidence: Evidence, accept: Callable[[Record, int], None], skipped: Skipped) -> "QueueOrder":
        """Return such a copy for after the recovery: no queue lacks units any more."""
        order = self.copied(accept, skipped)
        order._evidence = evidence
        order._may_go_back = False
        for chain in order.chains.values():
            chain.may_lack_units = False
        return order

    def forget(self, topic: str, end: int) -> None:
        """Forget the queues of a topic whose records below byte `end` were deleted: new ones have no predecessor.

        A later record that is undecided is judged again, as the first one of a new queue.
        """
        forgotten = [self._take_undecided(self.chains.pop(key)) for key in list(self.chains) if key[0] == topic]
        self._may_jump = {key for key in self._may_jump if key[0] != topic}
        for record in forgotten:
            if record is not None and record.physical_offset >= end:
                self.add(record)

    def accepted(self) -> Iterator[tuple[Key, Chain]]:
        """Return the queues that have a record with a unit."""
        return ((key, chain) for key, chain in self.chains.items() if chain.first >= 0)

    # the first record of a queue

    def _begin(self, record: Record) -> None:
        key = record.topic, record.queue_id
        if not may_have_queue(*key):
            self._skipped(record, "invalid topic or queue id")
            return
        if record.queue_offset < 0 or record.queue_offset * SMALLEST_RECORD > record.physical_offset:
            self._skipped(record, f"queue offset {record.queue_offset} exceeds the number of records before it")
            return
        if is_inner_batch(record):
            self._skipped(record, _BATCH)
            return
        unit = self._evidence.unit(key, record.queue_offset)
        prefix = None if unit == (record.physical_offset, record.size) or self._has_gap else self._prefix(record)
        chain = Chain(-1, record.queue_offset, record.queue_offset, record.physical_offset)
        self.chains[key] = chain
        if prefix is not None:
            chain.may_lack_units = self._may_go_back and (prefix is EMPTY_PREFIX or not self._trusts_units)
            chain.next, chain.window, chain.log_end = prefix.next, prefix.next, prefix.log_end
            self._continue(chain, record)
        else:
            self._take(chain, record)
        if record.queue_offset == 0 and unit is not None:
            chain.first_unit = unit[0]

    def _prefix(self, record: Record) -> QueuePrefix | None:
        prefix = self._evidence.prefix(record)
        if prefix is not None and not prefix.is_sure and record.queue_offset < prefix.next:
            return None
        if prefix is None and self._may_go_back and (record.queue_offset or record.sys_flag & INNER_BATCH):
            return EMPTY_PREFIX  # its units may be lost, and are rebuilt from earlier records
        return prefix

    # later records of a queue

    def _continue(self, chain: Chain, record: Record) -> None:
        """Decide the undecided record, then judge `record`, which follows it."""
        undecided = self._take_undecided(chain)
        if undecided is not None:
            self._decide(chain, undecided, record)
        offset = record.queue_offset
        if is_inner_batch(record):
            if chain.next <= offset <= chain.window:
                chain.window = offset + 1
            self._skipped(record, _BATCH)
        elif chain.next <= offset <= chain.window:
            if record.sys_flag & INNER_BATCH and offset == chain.next:
                self._wait(chain, record)
            else:
                self._take(chain, record)
        elif offset > chain.window:
            self._judge_higher(chain, record)
        else:
            self._judge_lower(chain, record)

    def _wait(self, chain: Chain, record: Record) -> None:
        """Leave a record undecided. A copy needs no segment, which may be deleted meanwhile."""
        chain.undecided = _copied(record)
        self.undecided.add(record.physical_offset)

    def _take_undecided(self, chain: Chain) -> Record | None:
        undecided, chain.undecided = chain.undecided, None
        if undecided is not None:
            self.undecided.discard(undecided.physical_offset)
        return undecided

    def _decide(self, chain: Chain, undecided: Record, following: Record) -> None:
        is_confirmed = following.queue_offset == undecided.queue_offset + 1
        if undecided.queue_offset == chain.next:
            if following.queue_offset == chain.next:
                self._skip(chain, undecided)
            else:
                self._take(chain, undecided)
        elif undecided.queue_offset > chain.next and is_confirmed:
            if chain.may_lack_units:
                raise ScanStartTooLateError(_lack_message(undecided, chain))
            self._take(chain, undecided)
        elif is_confirmed and chain.next != 1:
            self._restart_queue(chain, undecided)
        else:
            self._skip(chain, undecided)

    def _judge_higher(self, chain: Chain, record: Record) -> None:
        key = record.topic, record.queue_id
        missing = record.queue_offset - chain.next
        if missing * SMALLEST_RECORD > record.physical_offset - chain.log_end:
            self._skip(chain, record)
        elif key in self._may_jump:
            self._take(chain, record)
        elif self._evidence.unit(key, record.queue_offset) == (record.physical_offset, record.size):
            self._take(chain, record)
            chain.is_confirmed_by_unit = True
        else:
            self._wait(chain, record)

    def _judge_lower(self, chain: Chain, record: Record) -> None:
        if record.queue_offset != 0:
            self._skip(chain, record)
        elif chain.first == 0 and chain.first_unit == record.physical_offset:
            self._restart_queue(chain, record)
            chain.is_confirmed_by_unit = True
        else:
            self._wait(chain, record)

    def _restart_queue(self, chain: Chain, record: Record) -> None:
        """Restart the queue with this record: its topic was deleted and created again."""
        chain.next = chain.window = 0
        chain.first = -1
        self._take(chain, record)

    def _take(self, chain: Chain, record: Record) -> None:
        offset, gap_begin = record.queue_offset, chain.next
        if chain.first < 0:
            chain.first = offset
        chain.extend(offset + 1, record.physical_offset + record.size)
        if self._may_jump:
            self._may_jump.discard((record.topic, record.queue_id))
        self._accept(record, gap_begin)

    def _skip(self, chain: Chain, record: Record) -> None:
        self._skipped(record, f"queue offset {record.queue_offset}, expected {chain.next}")

    def __repr__(self) -> str:
        return f"<QueueOrder queues={len(self.chains)}>"


def _copied(record: Record) -> Record:
    at = record.position
    source = memoryview(bytes(record.source[at : at + record.size]))
    return structs.replace(
        record, source=source, position=0, body_at=record.body_at - at, properties_at=record.properties_at - at
    )


def _lack_message(record: Record, chain: Chain) -> str:
    return f"queue {record.topic}/{record.queue_id} ends at {chain.next}, record #{record.queue_offset} follows"
