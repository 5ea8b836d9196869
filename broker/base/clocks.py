"""The clocks of a daemon. Parts get them as arguments, so that tests can set the time."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns a time in ms."""


def wall_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return the ms of a clock that is never set."""
    return time.monotonic_ns() // 1_000_000
