"""Several requests at the same time."""

import asyncio
from functools import partial

import pytest

from skylarkmq.clients.sdk.admin.gathering import MAX_AT_ONCE, gathered
from skylarkmq.clients.sdk.base.errors import NoRoute


async def test_results_are_in_the_order_of_the_calls() -> None:
    """At most MAX_AT_ONCE calls run at the same time; the results do not depend on which ends first."""
    running: set[int] = set()
    most = 0

    async def call(number: int) -> int:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running.remove(number)
        return number

    assert await gathered([partial(call, number) for number in range(50)]) == list(range(50))
    assert most == MAX_AT_ONCE
    assert await gathered([]) == []


async def test_the_first_error_is_raised() -> None:
    """The other calls are canceled, and those that have not begun do not run."""
    begun: list[int] = []

    async def call(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise NoRoute("no route")
        await asyncio.Event().wait()

    with pytest.raises(NoRoute):
        await gathered([partial(call, number) for number in range(50)])
    assert begun == list(range(MAX_AT_ONCE))
