"""The gate of sends: shut while more is written than the disk can follow.

From the moment that `flushLagLimit` is passed producers are not read from. What was read by then is neither stored nor
refused at once: it waits in the pool. When the disk has caught up, it is stored and producers are read from again; what
has waited for `waitTimeMillsInSendQueue` by then is refused, and told by how much the disk is behind.

Source: docs/formats.md, "Flow control".
"""

from collections.abc import Callable

from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.store.message_store import MessageStore


class SendGate:
    """Opens and shuts the pool of sends. `reopen` serves what it kept, `release` has producers read from again."""

    def __init__(
        self, store: MessageStore, pool: Pool, reopen: Callable[[Pool], None], release: Callable[[], None]
    ) -> None:
        self._store = store
        self._pool = pool
        self._reopen = reopen
        self._release = release
        store.when_flush_behind(self.shut, self.open)

    def __repr__(self) -> str:
        return f"<SendGate {'shut' if self._pool.is_suspended else 'open'}>"

    def shut(self) -> None:
        """The disk is too far behind."""
        self._pool.suspend(self._why)

    def open(self) -> None:
        """It has caught up, or will never: then each send is told so by the store."""
        self._reopen(self._pool)
        if not self._pool.is_suspended:
            self._release()

    def _why(self) -> str:
        return f"flush behind {self._store.flush_lag} bytes, limit {self._store.flush_lag_limit}"
