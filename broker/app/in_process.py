"""A broker with its name server inside another process, with its own event loop and thread: for tests.

    with running(directory) as broker:
        broker.namesrv                      "127.0.0.1:41233"

Ports are free ones of the loopback address, all files are below the directory, and segments are small, so the broker
is ready at once. Settings are the same as for `mqbroker`, by RocketMQ's names.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import uvloop

from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.base.clocks import wall_ms
from skylarkmq.broker.config.live import LiveSettings
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import LOOPBACK, DaemonConfig, Loaded, Machine, load_broker
from skylarkmq.broker.ops.pages.console import ConsoleFactory

T = TypeVar("T")

SMALL: Final[Mapping[str, object]] = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "metricsPromExporterPort": 0,
}


class InProcessBroker(NamedTuple):
    """The addresses of the broker: `host:port` of name server and broker, and its store directory."""

    namesrv: str
    address: str
    store: Path


@contextmanager
def running(
    directory: Path, settings: Mapping[str, object] | None = None, console_factory: ConsoleFactory | None = None
) -> Iterator[InProcessBroker]:
    """Yield a running broker, and stop it in order afterwards. Raises StartError if it cannot start."""
    broker_port, namesrv_port = free_ports(2)
    store = directory / "store"
    own = {"listenPort": broker_port, "embeddedNamesrvPort": namesrv_port, "storePathRootDir": store}
    given = [Given(key, _text(value), "test") for key, value in {**SMALL, **own, **(settings or {})}.items()]
    machine = Machine(host_name="broker-a", address=LOOPBACK, home=directory, resolve=lambda host: host)
    loaded = load_broker(given, machine)
    with loop_in_a_thread() as loop:
        broker = wait(loop, made(loaded, console_factory))
        wait(loop, broker.start())
        try:
            yield InProcessBroker(f"{LOOPBACK}:{namesrv_port}", f"{LOOPBACK}:{broker_port}", store)
        finally:
            wait(loop, broker.stop())


async def made(loaded: Loaded[DaemonConfig], console_factory: ConsoleFactory | None = None) -> Broker:
    """Return a broker whose parts belong to the running event loop."""
    return Broker(loaded.config, LiveSettings(loaded, wall_ms), alone=False, console_factory=console_factory)


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop that runs in a thread until the context ends."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="mq-broker", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def wait(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in `loop` from another thread, and return its result."""
    future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, loop)
    return future.result()


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback address."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
