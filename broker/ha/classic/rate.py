"""The rates of a master's transfer, for operators and for `haFlowControlEnable`, and of what a slave receives."""

from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 1.0


class TransferRate:
    """Bytes in windows of a second. `now_s` is a monotonic clock, `limit` the number of bytes that a window allows."""

    def __init__(self, now_s: Callable[[], float], limit: int | None) -> None:
        self._now_s = now_s
        self._limit = limit
        self._begun_s = now_s()
        self._sent = 0
        self._before = 0

    def add(self, count: int) -> None:
        """Count bytes that were sent now."""
        self._turn()
        self._sent += count

    @property
    def allowance(self) -> int | None:
        """The bytes that this window still allows; None without a limit."""
        if self._limit is None:
            return None
        self._turn()
        return max(0, self._limit - self._sent)

    @property
    def wait_s(self) -> float:
        """Time until the next window."""
        return max(0.0, self._begun_s + WINDOW_S - self._now_s())

    @property
    def bytes_per_second(self) -> int:
        """The bytes of the last whole window."""
        self._turn()
        return self._before

    def _turn(self) -> None:
        passed = int((self._now_s() - self._begun_s) / WINDOW_S)
        if passed > 0:
            self._before = self._sent if passed == 1 else 0
            self._sent = 0
            self._begun_s += passed * WINDOW_S

    def __repr__(self) -> str:
        return f"<TransferRate sent={self._sent} limit={self._limit}>"


class ReceivingRate:
    """Bytes per second that a slave receives, over the last second or more."""

    def __init__(self) -> None:
        self._begin_s = 0.0
        self._begin_bytes = 0
        self.per_second = 0

    def step(self, now_s: float, received: int) -> None:
        """Register the bytes that the current connection has brought."""
        if received < self._begin_bytes:
            self._begin_s, self._begin_bytes = now_s, 0
        if now_s - self._begin_s >= 1.0:
            self.per_second = int((received - self._begin_bytes) / (now_s - self._begin_s))
            self._begin_s, self._begin_bytes = now_s, received
