"""Several requests at the same time, as a list of a hundred groups or brokers needs them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

MAX_AT_ONCE: Final = 8
"""Calls that run at the same time."""

T = TypeVar("T")


async def gathered(calls: list[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results of calls, at most MAX_AT_ONCE at the same time. The first error is raised."""
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await call()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(call)) for call in calls]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
