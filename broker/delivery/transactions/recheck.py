"""Half messages that are asked about again because an operator wants it: those that were discarded, above all.

They are stored once more, as if nobody had been asked yet. A copy of one that is open or was discarded belongs to the
same transaction; of anything else, nobody knows how it ended, and the copy is a transaction of its own.
Source: docs/formats.md, "Transactions".
"""

from typing import Final

from skylarkmq.broker.delivery.cold_read_retry import when_read
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.delivery.transactions.messages import Half, copy_of, half_of
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

RESUMABLE: Final = frozenset((SystemTopic.TRANSACTION_HALF, SystemTopic.TRANSACTION_CHECK_MAX))


class Resumption:
    """Has the producers of one broker asked again."""

    def __init__(self, store: MessageStore, puts: InternalPuts, transactions: Transactions) -> None:
        self._store = store
        self._puts = puts
        self._transactions = transactions

    def __repr__(self) -> str:
        return f"<Resumption of {self._transactions!r}>"

    async def resume(self, physical_offset: int) -> PutStatus | None:
        """Store what lies there, in whatever topic, as a half message that nobody was asked about yet; how that ended.

        None: there is no half message, nor one that was discarded.
        """
        await self._transactions.loaded.wait()
        half = await when_read(self._store, lambda: self._half_at(physical_offset))
        if half is None:
            return None
        before = self._transactions.halves.state(half.root)
        is_same = before in {HalfState.OPEN, HalfState.DISCARDED}
        copy = copy_of(half, half.root if is_same else None, 0)
        status = await self._puts.put(copy)
        if status in STORED:
            if is_same:
                self._transactions.halves.renewed(half.root, copy.queue_offset)
            if before is not HalfState.OPEN:
                self._transactions.opened(half.topic)
        return status

    def _half_at(self, physical_offset: int) -> Half | None:
        """The half message, or discarded one, that lies there; bytes inside a body are none. ColdRead."""
        half = half_of(self._store.record_at(physical_offset))
        if half is None or half.record.topic not in RESUMABLE or not self._store.is_queued(half.record):
            return None
        return half
