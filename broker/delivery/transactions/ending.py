"""The end of a transaction: the messages that are stored for it, and the state changes once they are in the log.

    commit      final message, then op message      contiguous, both or none: no decision without its message
    rollback    op message

The end of a copy is also the end of its root, and each of them gets an op message, the copy first. A start that finds
only one of these op messages in the log still detects the decision (`loading.py`). The final message passes through the
deferral, so a half message that was sent with a delay is delayed from now on.

Ends of the same half message are stored one at a time: while one is in progress the others wait, and then find its
result. A half message whose topic was deleted since is rolled back whatever its producer requests.
Source: docs/reference/wire.md, "Transactions"; docs/reference/disk.md, "Half messages on disk".
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.delivery.deferral import TIMER_REQUESTS, Defer
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.delivery.message_type import TRANSACTION
from skylarkmq.broker.delivery.transactions.messages import QUEUE_ID, HalfMessage, final_of, half_in, op_of
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.store.flush.sync_queue import Settled
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import PropertyName

DEFERRING: Final = frozenset((PropertyName.DELAY, *TIMER_REQUESTS))
"""Properties that defer a committed message."""

log = logging.getLogger(__name__)


class Ending(msgspec.Struct):
    """One end in progress: the messages to store for it, in order and contiguous."""

    half: HalfMessage
    is_commit: bool
    appends: list[Append]

    @property
    def status(self) -> PutStatus:
        """Return the status of its messages."""
        return self.appends[0].status


class Endings:
    """Ends the transactions of one store. `now_ms` returns Unix time."""

    def __init__(
        self,
        store: MessageStore,
        puts: InternalPuts,
        transactions: Transactions,
        defer: Defer,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._puts = puts
        self._transactions = transactions
        self._defer = defer
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<Endings of {self._transactions!r}>"

    # state

    @property
    def is_loaded(self) -> bool:
        """Return whether the open half messages are loaded."""
        return self._transactions.loaded.is_set()

    async def load_half(self, physical_offset: int, queue_offset: int) -> HalfMessage | None:
        """Return the same as `half_at`, after the load of open half messages, and after cold reads."""
        await self._transactions.loaded.wait()
        return await looked_up(self._store, lambda: self.half_at(physical_offset, queue_offset))

    def half_at(self, physical_offset: int, queue_offset: int) -> HalfMessage | None:
        """Return the half message, or copy of one, at a byte of the log; None without one. Raises ColdRead.

        `queue_offset` is where its unit is expected: the unit has the record's size, so the record is read once.
        """
        topic = SystemTopic.TRANSACTION_HALF
        record = self._store.record_of_unit(topic, QUEUE_ID, queue_offset, physical_offset)
        if record is not None:
            return half_in(record) if record.topic == topic else None
        record = self._store.reader.copied_record_at(physical_offset)
        if record is None or record.topic != topic or not self._store.is_queued(record):
            return None
        return half_in(record)

    def is_overdue(self, half: HalfMessage) -> bool:
        """Return whether only the response to a transaction check may end it, since its own immunity time is over."""
        if not half.has_immunity:
            return False
        age_ms = self._now_ms() - half.record.born_timestamp
        return age_ms > half.immunity_ms(self._transactions.config.transaction_time_out)

    def is_decided(self, half: HalfMessage) -> bool:
        """Return whether a half message was ended before, as far back as this is recorded."""
        return self._transactions.halves.state(half.root) is HalfState.DECIDED

    def is_under_way(self, half: HalfMessage) -> bool:
        """Return whether another end of this half message is in progress."""
        return half.root in self._transactions.under_way

    async def wait_for_others(self, half: HalfMessage) -> None:
        """Wait until no other end of the half message is in progress."""
        while (waiting := self._transactions.under_way.get(half.root)) is not None:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]

    # ending

    def begin(self, half: HalfMessage, *, is_commit: bool) -> Ending | PutStatus:
        """Begin an end. Returns it for `put` or `put_alone`, or the status that rejects it.

        Raises RequestError if this broker cannot deliver such a message.
        """
        now_ms = self._now_ms()
        final = None
        if is_commit and not self._is_deleted(half):
            final = final_of(half)
            if not DEFERRING.isdisjoint(half.properties):
                refusal = self._defer(final, dict(half.properties), now_ms)
                if refusal is not None:
                    return refusal
        self._transactions.under_way[half.root] = []
        ops = self._ops(half, now_ms)
        return Ending(half, final is not None, ops if final is None else [final, *ops])

    def put(self, ending: Ending) -> None:
        """Add the messages to the batch of this read. The caller calls `finish` once their status is decided."""
        try:
            self._store.put_batch(ending.appends)
        except BaseException:
            self.finish(ending)
            raise

    async def put_alone(self, ending: Ending) -> PutStatus:
        """Put the messages, finish the end, and return its status."""
        try:
            await self._puts.put_together(ending.appends)
        finally:
            self.finish(ending)
        return ending.status

    def commit(self, settled: Settled) -> bool:
        """Write the batch of this read. Returns True if it is decided; otherwise `settled` is called later."""
        self._store.commit()
        is_settled = self._store.flush.is_settled()
        if not is_settled:
            self._store.flush.when_settled(settled)
        return is_settled

    def finish(self, ending: Ending) -> None:
        """Update the state after the store has decided, and wake the other ends."""
        if ending.status in STORED:
            self._transactions.ended(ending.half, is_commit=ending.is_commit, now_ms=self._now_ms())
            if ending.is_commit:
                final = ending.appends[0]
                self._store.queues.note_message_type(final.topic, TRANSACTION, final.size)
        for waiting in self._transactions.under_way.pop(ending.half.root):
            if not waiting.done():
                waiting.set_result(None)

    def _is_deleted(self, half: HalfMessage) -> bool:
        if not self._store.deleted.covers(half.topic, half.record.physical_offset):
            return False
        log.warning("committed message dropped, its topic was deleted topic=%s key=%s", half.topic, half.unique_key)
        return True

    def _ops(self, half: HalfMessage, now_ms: int) -> list[Append]:
        """Return op messages for the latest copy, the copy that was ended, and the root."""
        offsets = {self._transactions.halves.latest(half.root), half.record.queue_offset, half.root}
        store_host = self._transactions.config.store_host
        return [op_of(offset, now_ms, store_host) for offset in sorted(offsets, reverse=True)]
