"""Retries of planning, while a cluster is not complete.

    a broker or the name servers are down     for brokerTimeoutMs
    a named topic or queue does not exist     for MISSING_S, or brokerTimeoutMs if that is less

While a broker restarts, the name servers have no route of its topics. If it is the only broker, none is registered,
which counts as a broker that is down. If others are registered, its topics look as if they did not exist; MISSING_S is
enough for a restart without recovery, and short enough for a misspelled name.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from skylarkmq.clients.arrow.topic.bounds import Missing, Unreachable
from skylarkmq.clients.arrow.topic.cluster import UNREACHABLE

PAUSE_S: Final = 0.2
MISSING_S: Final = 8.0

T = TypeVar("T")
log = logging.getLogger(__name__)


def with_cluster_retries(
    timeout_ms: int,
    request: Callable[[], T],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Return the result of `request`, retried for up to `timeout_ms`, or MISSING_S while a topic is missing.

    Raises the last error of the request.
    """
    deadline = clock() + timeout_ms / 1000
    missing_since: float | None = None
    while True:
        try:
            return request()
        except (Unreachable, *UNREACHABLE) as error:
            now = clock()
            if not isinstance(error, Missing):
                missing_since = None
            elif missing_since is None:
                missing_since = now
            if now > deadline or (missing_since is not None and now - missing_since >= MISSING_S):
                raise
            log.warning("waiting for the cluster error=%s", error)
            pause(PAUSE_S)
