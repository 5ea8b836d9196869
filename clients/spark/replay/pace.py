"""The rate of a replay: one limit for all requests together, exact over the whole run.

`take(n)` returns when `n` more messages may be sent. By any time `t` after the start, at most `rate * t` messages plus
one request have been sent. Time that was not used, because a broker was slow or a timer late, is made up for, up to
CATCH_UP_S.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

CATCH_UP_S: Final = 1.0
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?)\s*(?:/\s*(s|min|h))?")
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600}


def parse_rate(text: str) -> float:
    """Return messages per second for `10000/s`, `10k/s`, `600/min` or `500`. ValueError for other texts and 0."""
    found = _RATE.fullmatch(text.strip().lower())
    rate = 0.0 if found is None else float(found[1]) * (1000 if found[2] else 1) / _SECONDS[found[3] or "s"]
    if not rate:
        raise ValueError(f"a rate such as 10000/s or 600/min, not {text!r}")
    return rate


class Pace:
    """Permits at `rate` messages a second; None: without a limit."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._next = clock()  # when the next request may begin

    def __repr__(self) -> str:
        return f"<Pace {self.rate or 'unlimited'}>"

    async def take(self, count: int) -> None:
        """Wait until `count` more messages may be sent."""
        if self.rate is None:
            return
        now = self._clock()
        begin = max(now - CATCH_UP_S, self._next)
        self._next = begin + count / self.rate
        if begin > now:
            await self._sleep(begin - now)
