"""The time limit of one call: all its requests together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skylarkmq.clients.arguments import check_timeout
from skylarkmq.clients.errors import RequestTimeout


@asynccontextmanager
async def time_limit(timeout_s: float | None, call: str) -> AsyncIterator[None]:
    """Raise RequestTimeout if the block takes longer than `timeout_s` seconds; None sets no limit.

    A request that was sent by then may have been executed. Raises InvalidArgument for a timeout of 0 or less.
    """
    check_timeout(timeout_s)
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise RequestTimeout(
            f"{call} was not done within {timeout_s:g} s; requests that were sent may have been executed"
        ) from error
