"""The end of a transaction: what is stored for it, and what follows once that is in the log.

    commit      final message, then op message      contiguous, both or none: no decision without its message
    rollback    op message

A copy's end is also that of its root, and has an op message for each, the copy's first: whoever finds one of them in
the log without the other still knows what is decided (`loading.py`). The final message goes through the diversion, so a
half message that was sent with a delay is delayed now.

One at a time: while an end is under way, others of the same half message wait, and then find what came of it. A half
message of a topic that was deleted since is rolled back whatever its producer says.
Source: docs/formats.md, "Transactions", "Half messages on disk".
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.cold_read_retry import when_read
from skylarkmq.broker.delivery.deferral import TIMER_REQUESTS, Divert
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.delivery.message_type import TRANSACTION
from skylarkmq.broker.delivery.transactions.messages import Half, final_of, half_in, op_of
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.store.flush.sync_queue import Settled
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import PropertyName

DIVERTING: Final = frozenset((PropertyName.DELAY, *TIMER_REQUESTS))
"""What a committed message needs among its properties not to go straight to its topic."""

log = logging.getLogger(__name__)


class Ending(msgspec.Struct):
    """One end that is under way: what is to be stored for it, in that order and contiguous."""

    half: Half
    is_commit: bool
    appends: list[Append]

    @property
    def status(self) -> PutStatus:
        """How it went."""
        return self.appends[0].status


class Endings:
    """Ends the transactions of one store. `now_ms` gives Unix time."""

    def __init__(
        self,
        store: MessageStore,
        puts: InternalPuts,
        transactions: Transactions,
        divert: Divert,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._puts = puts
        self._transactions = transactions
        self._divert = divert
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<Endings of {self._transactions!r}>"

    # what there is

    @property
    def is_loaded(self) -> bool:
        """Whether it is known what is open."""
        return self._transactions.loaded.is_set()

    async def half_when_read(self, physical_offset: int) -> Half | None:
        """As `half_at`, once it is known what is open, however cold the log is."""
        await self._transactions.loaded.wait()
        return await when_read(self._store, lambda: self.half_at(physical_offset))

    def half_at(self, physical_offset: int) -> Half | None:
        """The half message, or copy of one, that begins at that byte of the log; None if none does. ColdRead."""
        record = self._store.written_record_at(physical_offset)
        if record is None or record.topic != SystemTopic.TRANSACTION_HALF or not self._store.is_queued(record):
            return None
        return half_in(record)

    def is_overdue(self, half: Half) -> bool:
        """Whether only the answer to a question may end it: it says itself for how long it is open without one."""
        if not half.has_immunity:
            return False
        age_ms = self._now_ms() - half.record.born_timestamp
        return age_ms > half.immunity_ms(self._transactions.config.transaction_time_out)

    def is_decided(self, half: Half) -> bool:
        """Whether a half message was ended before, as far back as that is known."""
        return self._transactions.halves.state(half.root) is HalfState.DECIDED

    def is_under_way(self, half: Half) -> bool:
        """Whether another end of this half message is being stored."""
        return half.root in self._transactions.under_way

    async def wait_for_others(self, half: Half) -> None:
        """Until no other end of it is under way."""
        while (waiting := self._transactions.under_way.get(half.root)) is not None:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]

    # ending

    def begin(self, half: Half, *, is_commit: bool) -> Ending | PutStatus:
        """What is to be put for an end, now by one of the two next methods; or the status that refuses it.

        RequestError: this broker cannot deliver such a message.
        """
        now_ms = self._now_ms()
        final = None
        if is_commit and not self._is_deleted(half):
            final = final_of(half)
            if not DIVERTING.isdisjoint(half.properties):
                refusal = self._divert(final, dict(half.properties), now_ms)
                if refusal is not None:
                    return refusal
        self._transactions.under_way[half.root] = []
        ops = self._ops(half, now_ms)
        return Ending(half, final is not None, ops if final is None else [final, *ops])

    def put(self, ending: Ending) -> None:
        """Add it to the batch of this read; `finish` follows once that is settled."""
        try:
            self._store.put_batch(ending.appends)
        except BaseException:
            self.finish(ending)
            raise

    async def put_alone(self, ending: Ending) -> PutStatus:
        """Put and finish it; how that ended."""
        try:
            await self._puts.put_together(ending.appends)
        finally:
            self.finish(ending)
        return ending.status

    def commit(self, settled: Settled) -> bool:
        """Write the batch of this read. True: everything in it is decided; else `settled` is called when it is."""
        self._store.commit()
        if self._store.is_sync:
            self._store.when_settled(settled)
        return not self._store.is_sync

    def finish(self, ending: Ending) -> None:
        """The store has decided."""
        if ending.status in STORED:
            self._transactions.ended(ending.half, is_commit=ending.is_commit, now_ms=self._now_ms())
            if ending.is_commit:
                final = ending.appends[0]
                self._store.note_special(final.topic, TRANSACTION, final.size)
        for waiting in self._transactions.under_way.pop(ending.half.root):
            if not waiting.done():
                waiting.set_result(None)

    def _is_deleted(self, half: Half) -> bool:
        if not self._store.is_deleted(half.topic, half.record.physical_offset):
            return False
        log.warning("committed message dropped, its topic was deleted topic=%s key=%s", half.topic, half.unique_key)
        return True

    def _ops(self, half: Half, now_ms: int) -> list[Append]:
        """Op messages of the latest copy, the one that was named, and the root."""
        offsets = {self._transactions.halves.latest(half.root), half.record.queue_offset, half.root}
        store_host = self._transactions.config.store_host
        return [op_of(offset, now_ms, store_host) for offset in sorted(offsets, reverse=True)]
