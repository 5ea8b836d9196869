"""Steps of a start that both daemons use. Errors name the obstacle in an operator's words."""

import asyncio
import errno
import gc
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, Protocol

from skylarkmq.broker.app.host.huge_pages import HugePages, huge_page_bytes
from skylarkmq.broker.app.host.idle_states import IdleStateInhibitor, open_request
from skylarkmq.broker.base.address_ranges import is_loopback
from skylarkmq.broker.base.errors import StartError, StartStopped
from skylarkmq.broker.config.sections import ListenConfig, is_wildcard
from skylarkmq.broker.ops.pages.health import HealthServer
from skylarkmq.broker.remoting.busy_polling import ReceivedBytes
from skylarkmq.broker.store.files.errors import LoadStopped, StoreError

COLLECTOR_THRESHOLDS: Final = (5_000, 20, 20)
"""docs/decisions/0008-garbage-collector.md"""

log = logging.getLogger(__name__)


class Loads(Protocol):
    """A part that may take minutes to load."""

    def load(self, should_stop: Callable[[], bool]) -> object:
        """Load the part. Raises LoadStopped soon after `should_stop` has returned True, StoreError on other
        failures."""

    def close(self) -> None:
        """Release what was loaded."""


def warn_if_unreachable(listen: ListenConfig) -> None:
    """Log a warning if `brokerIP1` directs clients on other machines to themselves."""
    if is_wildcard(listen.bind_host) and is_loopback(listen.advertised_ip):
        log.warning(
            "only clients on this machine can connect: the broker is bound to %s, but brokerIP1=%s",
            listen.bind_host,
            listen.advertised_host,
        )


async def start_health(health: HealthServer, running: AsyncExitStack) -> None:
    """Serve the health pages until `running` ends."""
    await health.start()
    running.push_async_callback(health.stop)


async def load_beside(part: Loads, stop: asyncio.Event) -> None:
    """Load a part in a thread, while health pages and signals are served. Raises StartError or StartStopped.

    This is the only thread that computes: no requests are served yet that it could delay.
    """
    is_called_off = threading.Event()
    loading = asyncio.get_running_loop().run_in_executor(
        None, part.load, lambda: stop.is_set() or is_called_off.is_set()
    )
    try:
        await asyncio.shield(loading)
    except LoadStopped:
        raise StartStopped from None
    except StoreError as error:
        raise StartError(str(error)) from None
    except asyncio.CancelledError:
        is_called_off.set()
        await asyncio.wait([loading])
        if loading.exception() is None:
            part.close()
        raise


async def listen(start: Callable[[str, int], Awaitable[int]], host: str, port: int, key: str) -> None:
    """Let a part listen. Raises StartError with the address and the key if it cannot."""
    try:
        await start(host, port)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
        raise StartError(f"port {port} on {host} {reason} ({key})") from None


def hold_off_collector(running: AsyncExitStack) -> None:
    """Exclude the objects that exist after the start from garbage collection, and run it less often, until the stop."""
    running.callback(gc.set_threshold, *gc.get_threshold())
    running.callback(gc.unfreeze)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def use_huge_pages(running: AsyncExitStack) -> None:
    """Collapse the broker's memory into huge pages, if the kernel has them, until the stop."""
    if size := huge_page_bytes():
        huge_pages = HugePages(size)
        huge_pages.start()
        running.callback(huge_pages.stop)


def keep_cpus_awake(reads: ReceivedBytes, running: AsyncExitStack) -> IdleStateInhibitor:
    """Keep idle processors awake while data arrives, where that is possible, until the stop."""
    inhibitor = IdleStateInhibitor(open_request(), reads)
    running.callback(inhibitor.close)
    return inhibitor
