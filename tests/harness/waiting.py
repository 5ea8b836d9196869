"""Waiting for a condition without an event of its own: the event loop runs until it holds, without sleeping."""

import asyncio
from collections.abc import Callable

from tests.harness.limits import WAIT_LIMIT_S


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until `condition()` is true. Raises TimeoutError after WAIT_LIMIT_S."""
    async with asyncio.timeout(WAIT_LIMIT_S):
        while not condition():  # noqa: ASYNC110 (see above)
            await asyncio.sleep(0)
