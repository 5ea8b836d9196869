"""Which records of the log get a unit in their queue: one rule for recovery, `store verify` and `store repair`.

Only the body of a record has a checksum. A power cut can tear the head of a record that was never acknowledged: then
the record is whole, but its queue offset, topic, queue id or flags are not those that were written. What stands behind
it in the log of the same life was not acknowledged either, because a sync covers all that was written before; what
later lives append counts on from where the recovery between them left each queue. So a queue's records are judged in
the order of the log. With `next`, the offset behind its last record:

    offset = next   gets its unit. A record that older versions gave an offset and no unit (sysFlag 0x80) may have been
                    counted or not: it is undecided until the queue's next record shows it
    offset > next   is undecided. It gets its unit if the queue's next record in the log has offset + 1, or if the
                    queue's own unit at that offset is already that of this record. Between the two records there must
                    be room for all records that are missing (91 bytes each). What lies between becomes a hole
    offset < next   gets none, but for 0: its topic was deleted and made again if a record #1 follows, or if the queue's
                    unit 0 was that of this record. After a record #0 alone, a record #1 belongs to the older #0

An undecided record that is followed by no record of its queue is left out (an old 0x80 record is counted). The next
life then appends with `next`, which decides it in the same way for all later recoveries.

A record that is left out is `skipped`: it stays in the log, gets no unit, and is counted and named. No acknowledged
record is skipped: all before it is intact, so it continues its queue.

What a queue has before the first record that is judged comes from `Evidence`. Without any, that record is believed.

Source: docs/formats.md, "Recovery".
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

import msgspec

from skylarkmq.broker.store.log.record_rules import INNER_BATCH, is_inner_batch, may_have_queue
from skylarkmq.protocol.record import SMALLEST_RECORD, Record

Key: TypeAlias = tuple[str, int]
"""Topic and queue id."""

_BATCH: Final = "a batch in one record, of a topic that has other queues"

Skipped: TypeAlias = Callable[[Record, str], None]
"""Called with each record that is left out, and why."""


class Front(msgspec.Struct, frozen=True):
    """What a queue has before the first record judged: `next` is behind its last record, which ends at byte `log_end`;
    up to `window` its units are of nobody. Not `is_sure`: its last units may be torn ones of later records."""

    next: int
    window: int
    log_end: int
    is_sure: bool = True


NO_FRONT: Final = Front(0, 0, 0)
"""Of every queue of a log that begins at its byte 0."""


class Evidence(Protocol):
    """What the queues' files show."""

    def unit(self, key: Key, offset: int) -> tuple[int, int] | None:
        """Physical offset and size in a queue's unit; None when it has no such unit."""

    def front(self, record: Record) -> Front | None:
        """What the queue of a record has before the first byte judged; None when nothing shows it."""


class BeginsTooLateError(Exception):
    """A queue lacks units of records from before the first byte judged."""


class Chain(msgspec.Struct, gc=False):
    """The records of one queue: those with a unit have the offsets [`first`, `next`); `first` -1: none has one yet."""

    first: int
    next: int
    window: int  # a record with an offset up to this one continues the queue
    log_end: int  # of the last record
    first_unit: int = -1  # where the unit of offset 0, as it was found, says its record is
    odd: Record | None = None  # undecided
    may_lack: bool = False  # units of records from before the first byte judged
    is_by_unit: bool = False  # the last record counts because its unit says so


class QueueOrder:
    """Fed with the records of the log in their order. `accept` is called with each record that gets a unit and the
    first offset of the hole in front of it; records of one queue come in their order.

    `may_go_back`: the log has records before those judged. BeginsTooLateError is raised when a queue lacks theirs;
    with `trusts_units` only of a queue that has no units at all.
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
        self._may_jump: set[Key] = set()
        self._has_gap = False

    def pass_gap(self) -> None:
        """Bytes of the log are missing here: the next record of each queue may have any later offset."""
        self._may_jump.update(self.chains)
        self._has_gap = True
        self._may_go_back = False

    def add(self, record: Record) -> None:
        """Judge the next record that belongs to a queue of ours by its flags and topic."""
        chain = self.chains.get((record.topic, record.queue_id))
        if chain is None:
            self._begin(record)
        elif record.queue_offset == chain.next and chain.odd is None and not record.sys_flag & INNER_BATCH:
            self._take(chain, record)
        else:
            self._continue(chain, record)

    def finish(self) -> None:
        """No record follows: decide what is undecided."""
        for chain in self.chains.values():
            odd, chain.odd = chain.odd, None
            if odd is None:
                continue
            if odd.queue_offset == chain.next:
                self._take(chain, odd)
            elif chain.may_lack and odd.queue_offset > chain.window:
                raise BeginsTooLateError(_lacks(odd, chain))
            else:
                self._skip(chain, odd)

    def accepted(self) -> Iterator[tuple[Key, Chain]]:
        """The queues that have a record with a unit."""
        return ((key, chain) for key, chain in self.chains.items() if chain.first >= 0)

    # the first record of a queue

    def _begin(self, record: Record) -> None:
        key = record.topic, record.queue_id
        if not may_have_queue(*key):
            self._skipped(record, "no queue may have this topic and queue id")
            return
        if record.queue_offset < 0 or record.queue_offset * SMALLEST_RECORD > record.physical_offset:
            self._skipped(record, f"queue offset {record.queue_offset} needs more records than the log had by then")
            return
        if is_inner_batch(record):
            self._skipped(record, _BATCH)
            return
        unit = self._evidence.unit(key, record.queue_offset)
        front = None if unit == (record.physical_offset, record.size) or self._has_gap else self._front(record)
        chain = Chain(-1, record.queue_offset, record.queue_offset, record.physical_offset)
        self.chains[key] = chain
        if front is not None:
            chain.may_lack = self._may_go_back and (front is NO_FRONT or not self._trusts_units)
            chain.next, chain.window, chain.log_end = front.next, front.window, front.log_end
            self._continue(chain, record)
        else:
            self._take(chain, record)
        if record.queue_offset == 0 and unit is not None:
            chain.first_unit = unit[0]

    def _front(self, record: Record) -> Front | None:
        front = self._evidence.front(record)
        if front is not None and not front.is_sure and record.queue_offset < front.next:
            return None
        if front is None and self._may_go_back and record.queue_offset:
            return NO_FRONT  # its units may be lost, and be made again from earlier records
        return front

    # the records behind it

    def _continue(self, chain: Chain, record: Record) -> None:
        """Decide what is undecided, now that this record follows it; then judge this record."""
        odd, chain.odd = chain.odd, None
        if odd is not None:
            self._decide(chain, odd, record)
        offset = record.queue_offset
        if is_inner_batch(record):
            if chain.next <= offset <= chain.window:
                chain.window = offset + 1
            self._skipped(record, _BATCH)
        elif chain.next <= offset <= chain.window:
            if record.sys_flag & INNER_BATCH and offset == chain.next:
                chain.odd = record
            else:
                self._take(chain, record)
        elif offset > chain.window:
            self._jump(chain, record)
        else:
            self._restart(chain, record)

    def _decide(self, chain: Chain, odd: Record, following: Record) -> None:
        is_confirmed = following.queue_offset == odd.queue_offset + 1
        if odd.queue_offset == chain.next:
            if following.queue_offset == chain.next:
                self._skip(chain, odd)
            else:
                self._take(chain, odd)
        elif odd.queue_offset > chain.next and is_confirmed:
            if chain.may_lack:
                raise BeginsTooLateError(_lacks(odd, chain))
            self._take(chain, odd)
        elif is_confirmed and chain.next != 1:
            self._start_anew(chain, odd)
        else:
            self._skip(chain, odd)

    def _jump(self, chain: Chain, record: Record) -> None:
        key = record.topic, record.queue_id
        missing = record.queue_offset - chain.next
        if missing * SMALLEST_RECORD > record.physical_offset - chain.log_end:
            self._skip(chain, record)
        elif key in self._may_jump:
            self._take(chain, record)
        elif self._evidence.unit(key, record.queue_offset) == (record.physical_offset, record.size):
            self._take(chain, record)
            chain.is_by_unit = True
        else:
            chain.odd = record

    def _restart(self, chain: Chain, record: Record) -> None:
        if record.queue_offset != 0:
            self._skip(chain, record)
        elif chain.first == 0 and chain.first_unit == record.physical_offset:
            self._start_anew(chain, record)
            chain.is_by_unit = True
        else:
            chain.odd = record

    def _start_anew(self, chain: Chain, record: Record) -> None:
        """Its topic was deleted and made again: the queue begins with this record."""
        chain.next = chain.window = 0
        chain.first = -1
        self._take(chain, record)

    def _take(self, chain: Chain, record: Record) -> None:
        offset, hole = record.queue_offset, chain.next
        if chain.first < 0:
            chain.first = offset
        chain.next = chain.window = offset + 1
        chain.log_end = record.physical_offset + record.size
        chain.is_by_unit = chain.may_lack = False
        if self._may_jump:
            self._may_jump.discard((record.topic, record.queue_id))
        self._accept(record, hole)

    def _skip(self, chain: Chain, record: Record) -> None:
        self._skipped(record, f"queue offset {record.queue_offset} where {chain.next} is next")

    def __repr__(self) -> str:
        return f"<QueueOrder queues={len(self.chains)}>"


def _lacks(record: Record, chain: Chain) -> str:
    return f"queue {record.topic}/{record.queue_id} ends at {chain.next}, record #{record.queue_offset} follows"
