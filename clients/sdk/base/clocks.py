"""The clock of this host."""

import time


def now_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000
