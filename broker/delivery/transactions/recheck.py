"""New checks of half messages at an operator's request, above all of discarded ones.

The half message is stored once more, with no checks so far. A copy of an open or discarded half message belongs to the
same transaction. A decided one stays as it is. The half topic has no other ones: what is open there is always recorded.
Of a discarded message from long ago the decision may not be recorded any more; its copy is a transaction of its own.
Source: docs/reference/wire.md, "Transactions".
"""

from collections.abc import Callable
from typing import Final

from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.delivery.transactions.messages import HalfMessage, copy_of, half_of
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

RESUMABLE: Final = frozenset((SystemTopic.TRANSACTION_HALF, SystemTopic.TRANSACTION_CHECK_MAX))


class Recheck:
    """Restarts the checks of half messages in one broker."""

    def __init__(self, store: MessageStore, puts: InternalPuts, transactions: Transactions) -> None:
        self._store = store
        self._puts = puts
        self._transactions = transactions

    def __repr__(self) -> str:
        return f"<Recheck of {self._transactions!r}>"

    async def resume(self, physical_offset: int, may_resume: Callable[[str], bool]) -> PutStatus | None:
        """Store the message at a byte of the log as a half message without checks. Returns the status.

        Returns None if there is neither a half message nor a discarded one, if its transaction is decided, or if
        `may_resume` is False for the topic that its producer sent it to.
        """
        await self._transactions.loaded.wait()
        half = await looked_up(self._store, lambda: self._half_at(physical_offset))
        if half is None or not may_resume(half.topic):
            return None
        before = self._transactions.halves.state(half.root)
        is_same = before in {HalfState.OPEN, HalfState.DISCARDED}
        if not is_same and (before is not None or half.record.topic == SystemTopic.TRANSACTION_HALF):
            return None
        copy = copy_of(half, half.root if is_same else None, 0)
        status = await self._puts.put(copy)
        if status in STORED:
            if is_same:
                self._transactions.halves.renewed(half.root, copy.queue_offset)
            if before is not HalfState.OPEN:
                self._transactions.opened(half.topic)
        return status

    def _half_at(self, physical_offset: int) -> HalfMessage | None:
        """Return the half message, or discarded one, at a byte of the log, not inside a body. Raises ColdRead."""
        half = half_of(self._store.record_at(physical_offset))
        if half is None or half.record.topic not in RESUMABLE or not self._store.is_queued(half.record):
            return None
        return half
