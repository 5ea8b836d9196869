"""The results of a handler that postpone its message: when the broker delivers it again.

A broker of RocketMQ delays redelivery by levels, not by seconds: level 1 is 1 s, level 18 is 2 h in its default table
(`messageDelayLevel`). A `timedelta` is rounded up to the next level of that table.
"""

from bisect import bisect_left
from datetime import timedelta
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_type
from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.protocol.decimals import INT32_MAX

LEVEL_SECONDS: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The default table, from level 1 on. A broker with another `messageDelayLevel` waits for other times."""
TO_DEAD_LETTERS: Final = -1


class Later(msgspec.Struct, frozen=True):
    """A handler's result: the message is not finished, deliver it again.

    `delay_level` 0, the default: after the broker's own time, which grows with each redelivery; 1 to 18: after the time
    of that level; -1: never, the message becomes a dead letter. `delay` gives a time instead, at most 2 h.

    Orderly consumers ignore both: the queue pauses for `suspend_pause_s`, and the same message follows.
    """

    delay_level: int = 0
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        if isinstance(self.delay_level, bool) or not isinstance(self.delay_level, int):
            raise InvalidArgument(f"delay_level={self.delay_level!r} is not a whole number")
        if not TO_DEAD_LETTERS <= self.delay_level <= INT32_MAX:
            raise InvalidArgument(f"delay_level must be {TO_DEAD_LETTERS} to {INT32_MAX}, not {self.delay_level}")
        if self.delay is not None and self.delay_level:
            raise InvalidArgument("give either delay or delay_level, not both")
        if self.delay is not None:
            level_of(self.delay)

    @property
    def level(self) -> int:
        """The delay level that is sent to the broker."""
        return self.delay_level if self.delay is None else level_of(self.delay)


LATER: Final = Later()


def level_of(delay: timedelta) -> int:
    """Return the lowest delay level that waits for at least `delay`. Raises InvalidArgument beyond 0 s to 2 h."""
    check_type("delay", delay, timedelta)
    seconds = delay.total_seconds()
    if not 0 <= seconds <= LEVEL_SECONDS[-1]:
        raise InvalidArgument(f"delay is {seconds:g} s: give 0 s to {LEVEL_SECONDS[-1]} s (2 h)")
    return bisect_left(LEVEL_SECONDS, seconds) + 1
