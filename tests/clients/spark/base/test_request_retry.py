"""Retries end after their limit, which is shorter until a request has succeeded."""

import asyncio

import pytest

from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute
from skylarkmq.clients.spark.base.request_retry import RetryLimit, with_retries
from skylarkmq.protocol.codes import ResponseCode


def test_the_limit_is_shorter_until_a_first_success() -> None:
    """The longer limit is also the maximum of the shorter one."""
    limit = RetryLimit(15, 60)
    assert limit.seconds == 15
    limit.succeeded()
    assert limit.seconds == 60
    assert RetryLimit(15, 0.5).seconds == 0.5


def attempts_of(limit: RetryLimit, error: Exception, fails: int = 1_000_000) -> int:
    """Return the number of attempts of a request that fails so often."""
    made = 0

    async def attempt() -> None:
        nonlocal made
        made += 1
        if made <= fails:
            raise error

    try:
        asyncio.run(with_retries(attempt, "test", limit))
    except type(error):
        pass
    return made


def test_temporary_errors_are_retried_within_the_limit() -> None:
    """A permanent error is raised at once, and so is the last one after the limit."""
    missing, invalid = NoRoute("no route"), BrokerError("no", code=ResponseCode.MESSAGE_ILLEGAL)
    assert attempts_of(RetryLimit(0, 0), missing) == 1
    assert 2 <= attempts_of(RetryLimit(0.15, 60), missing) <= 4
    assert attempts_of(RetryLimit(60, 60), missing, fails=1) == 2
    assert attempts_of(RetryLimit(60, 60), invalid) == 1


def test_a_success_elsewhere_extends_the_limit_of_waiting_requests() -> None:
    """The request that waits uses the limit of that moment."""
    limit = RetryLimit(0.05, 60)

    async def scenario() -> int:
        made = 0

        async def attempt() -> int:
            nonlocal made
            made += 1
            limit.succeeded()
            if made < 3:
                raise NoRoute("no route")
            return made

        return await with_retries(attempt, "test", limit)

    assert asyncio.run(scenario()) == 3
    with pytest.raises(NoRoute):
        asyncio.run(with_retries(_missing, "test", RetryLimit(0, 60)))


async def _missing() -> None:
    raise NoRoute("no route")
