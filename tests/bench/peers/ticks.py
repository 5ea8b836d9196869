"""A clock for loads that run in an event loop: the kernel's timer behind a descriptor.

The timers of an event loop have a resolution of whole milliseconds, and fire up to two of them late; a load that sends
every millisecond would measure them. `timerfd` is in the standard library from Python 3.13 on; until then it is called
by ctypes, on Linux.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from struct import Struct
from typing import Final

TFD_NONBLOCK: Final = os.O_NONBLOCK
TFD_TIMER_ABSTIME: Final = 1
NS: Final = 1_000_000_000
_ITIMERSPEC: Final = Struct("@qqqq")  # interval and first time: seconds, nanoseconds
_COUNT: Final = Struct("@Q")


async def strike(start_ns: int, interval_ns: int, ticks: int, at_tick: Callable[[int], None]) -> None:
    """Call `at_tick` with 0, 1, ... `ticks` - 1, each at `start_ns` (monotonic) plus that many intervals.

    Missed ticks are made up for at once. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, TFD_NONBLOCK)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    loop, over, tick = asyncio.get_running_loop(), asyncio.Event(), 0

    def expired() -> None:
        nonlocal tick
        (count,) = _COUNT.unpack(os.read(timer, _COUNT.size))
        for number in range(tick, min(tick + count, ticks)):
            at_tick(number)
        tick += count
        if tick >= ticks:
            over.set()

    try:
        when = _ITIMERSPEC.pack(*divmod(interval_ns, NS), *divmod(start_ns, NS))
        if libc.timerfd_settime(timer, TFD_TIMER_ABSTIME, when, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        loop.add_reader(timer, expired)
        await over.wait()
    finally:
        loop.remove_reader(timer)
        os.close(timer)
