"""Waiting for what has no event of its own: the loop runs until it is so, and nobody sleeps."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 10.0


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until `condition()` is true; TimeoutError after PATIENCE_S."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (see above)
            await asyncio.sleep(0)
