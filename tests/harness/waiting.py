"""Waiting for a condition without an event of its own: the event loop runs until it holds, without sleeping."""

import asyncio
from collections.abc import Callable

TIMEOUT_S = 10.0


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until `condition()` is true. Raises TimeoutError after TIMEOUT_S."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 (see above)
            await asyncio.sleep(0)
