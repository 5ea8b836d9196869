"""A time limit for calls that may take several requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skylarkmq.clients.sdk.base.errors import RequestTimeout


@asynccontextmanager
async def within(timeout_s: float | None, call: str) -> AsyncIterator[None]:
    """Raise RequestTimeout if the block takes longer; None: no limit. The text of the error names the `call`."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise RequestTimeout(
            f"{call} took more than {timeout_s:g} s. Check the brokers and the network, or allow more time."
        ) from error
