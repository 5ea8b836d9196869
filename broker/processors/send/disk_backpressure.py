"""Backpressure on sends while the disk is too slow.

While more than `flushLagLimit` bytes are written but not flushed, the broker does not read from producers. Sends that
were read before wait in the pool: they are neither stored nor refused yet. When the flush has caught up, they are
stored and reading resumes. A send that has waited for `waitTimeMillsInSendQueue` is refused, with the flush lag in the
remark.

Source: docs/reference/behaviour.md, "Flow control".
"""

from collections.abc import Callable

from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.store.message_store import MessageStore


class SendBackpressure:
    """Pauses and resumes the pool of sends.

    `reopen` serves the sends that waited in the pool; `release` resumes reading from producers.
    """

    def __init__(
        self, store: MessageStore, pool: Pool, reopen: Callable[[Pool], None], release: Callable[[], None]
    ) -> None:
        self._store = store
        self._pool = pool
        self._reopen = reopen
        self._release = release
        store.flush.lag_limit.watch(self.pause, self.resume)

    def __repr__(self) -> str:
        return f"<SendBackpressure {'paused' if self._pool.is_suspended else 'running'}>"

    def pause(self) -> None:
        """Keep sends waiting in the pool: the flush is too far behind."""
        self._pool.suspend(self._reason)

    def resume(self) -> None:
        """Serve sends again: the flush has caught up, or has failed for good (the store then refuses sends)."""
        self._reopen(self._pool)
        if not self._pool.is_suspended:
            self._release()

    def _reason(self) -> str:
        return f"flush behind {self._store.flush.lag} bytes, limit {self._store.flush.lag_limit.limit_bytes}"
