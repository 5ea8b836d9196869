"""Several requests at the same time, as a list of a hundred groups or brokers needs them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

MAX_AT_ONCE: Final = 4
"""Calls that run at the same time: some 0.3 ms of work for a broker that serves the console in its own event loop."""

T = TypeVar("T")


async def gathered(calls: list[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results of calls, at most MAX_AT_ONCE at the same time. The first error is raised."""
    results: dict[int, T] = {}
    remaining = enumerate(calls)

    async def worker() -> None:
        for index, call in remaining:
            results[index] = await call()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in calls[:MAX_AT_ONCE]:
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [results[index] for index in range(len(calls))]
