"""Retries of requests after errors that may be temporary.

A broker that restarts has no route for a moment. If a task fails because of it, Spark repeats the whole task, or, on
`local[N]`, ends the query. So a request that fails for a temporary reason is retried for a limited time, with pauses
that double.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from skylarkmq.clients.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.errors import ClientError, NoRoute
from skylarkmq.clients.producing.sends import RETRY_CODES

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0

T = TypeVar("T")
log = logging.getLogger(__name__)


def is_temporary(error: ClientError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(error, (*TRANSPORT_ERRORS, NoRoute)) or error.code in RETRY_CODES


async def with_retries(
    attempt: Callable[[], Awaitable[T]], what: str, timeout_s: float, on_repeat: Callable[[], None] = lambda: None
) -> T:
    """Return the result of `attempt`. Raises the last ClientError if it is permanent, or `timeout_s` has passed.

    `what` describes the request in the log; only the first retry is logged.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = PAUSE_S
    while True:
        try:
            return await attempt()
        except ClientError as error:
            if not is_temporary(error) or loop.time() >= deadline:
                raise
            if pause_s == PAUSE_S:
                log.warning("retrying what=%s error=%s", what, error)
        on_repeat()
        await asyncio.sleep(min(pause_s, max(deadline - loop.time(), 0)))
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
