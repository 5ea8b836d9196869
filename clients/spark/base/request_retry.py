"""Retries of requests after errors that may be temporary.

A broker that restarts has no route for a moment. If a task fails because of it, Spark repeats the whole task, or, on
`local[N]`, ends the query. So a request that fails for a temporary reason is retried for a limited time, with pauses
that double.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute
from skylarkmq.clients.sdk.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.sdk.producing.sends import RETRY_CODES

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0

T = TypeVar("T")
log = logging.getLogger(__name__)


class RetryLimit:
    """How long requests are retried: `first_s` until `succeeded` is called, then `later_s`."""

    def __init__(self, first_s: float, later_s: float) -> None:
        self._first_s = min(first_s, later_s)
        self._later_s = later_s
        self._has_succeeded = False

    def __repr__(self) -> str:
        return f"<RetryLimit {self.seconds} s>"

    @property
    def seconds(self) -> float:
        """The limit now."""
        return self._later_s if self._has_succeeded else self._first_s

    def succeeded(self) -> None:
        """Use the longer limit from now on."""
        self._has_succeeded = True


def is_temporary(error: ClientError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(error, (*TRANSPORT_ERRORS, NoRoute)) or error.code in RETRY_CODES


async def with_retries(
    attempt: Callable[[], Awaitable[T]], what: str, limit: RetryLimit, on_repeat: Callable[[], None] = lambda: None
) -> T:
    """Return the result of `attempt`. Raises the last ClientError if it is permanent, or after the limit.

    `what` describes the request in the log; only the first retry is logged.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    pause_s = PAUSE_S
    while True:
        try:
            return await attempt()
        except ClientError as error:
            left_s = started + limit.seconds - loop.time()
            if not is_temporary(error) or left_s <= 0:
                raise
            if pause_s == PAUSE_S:
                log.warning("retrying what=%s error=%s", what, error)
        on_repeat()
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
