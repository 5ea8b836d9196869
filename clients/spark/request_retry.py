"""Requests that are repeated while their errors may pass.

Brokers restart, and have no route for a moment; a task that fails for it makes Spark begin anew, or, on `local[N]`,
ends the query. So whatever failed for a reason that may pass is tried again, with pauses that double, for a time.
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


def may_pass(error: ClientError) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, (*TRANSPORT_ERRORS, NoRoute)) or error.code in RETRY_CODES


async def repeated(
    attempt: Callable[[], Awaitable[T]], what: str, timeout_s: float, on_repeat: Callable[[], None] = lambda: None
) -> T:
    """What `attempt` returns in the end; the last ClientError if that may not pass, or `timeout_s` is over.

    `what` is for the log, which is told once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = PAUSE_S
    while True:
        try:
            return await attempt()
        except ClientError as error:
            if not may_pass(error) or loop.time() >= deadline:
                raise
            if pause_s == PAUSE_S:
                log.warning("trying again what=%s error=%s", what, error)
        on_repeat()
        await asyncio.sleep(min(pause_s, max(deadline - loop.time(), 0)))
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
