"""Waiting for a condition without an event of its own.

The event loop runs without a pause for as long as most conditions take, then pauses between two looks: a condition that
needs a timer or a thread would otherwise use a processor that other workers need.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tests.harness.limits import WAIT_LIMIT_S

ITERATIONS: Final = 50
PAUSE_S: Final = 0.001


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until `condition()` is true. Raises TimeoutError after WAIT_LIMIT_S."""
    iterations = 0
    async with asyncio.timeout(WAIT_LIMIT_S):
        while not condition():
            iterations += 1
            await asyncio.sleep(0 if iterations < ITERATIONS else PAUSE_S)
