"""Driver processes: every official client behind the same command line and the same line protocol.

    <driver> produce|consume|retry|orderly|broadcast|query|request|reply|transact NAMESRV TOPIC GROUP DEADLINE_SECONDS
             [ACCESS_KEY SECRET_KEY]

`produce` reads orders (plan.py) from its input, one JSON object a line, and sends each as specified. `consume`
subscribes to all tags in cluster mode. Java drivers also accept several topics, separated by commas; Java and Go
drivers also accept `TOPIC where EXPRESSION`, a SQL92 subscription. `retry`, `orderly` and `broadcast` consume in the
same way. The handler fails a message as many times as its property `fails` requires; a client that has such a setting
retries once at most. `query` (Java only) reads queries and prints the result of each. `request` (Java and Go) sends
each order as a request and prints its reply as received. `reply` (Java and Go) consumes, and replies with REPLY_PREFIX
and the body of the request. `transact` (Java and Go) sends each order in a transaction. The property `local` gives the
result of the local transaction, the property `check` that of a transaction check: commit, rollback or unknown.

A driver shuts its client down cleanly when its input ends, and exits with status 3 at its deadline. It prints events to
stdout, one JSON object a line; `event` names the type (the structs below, bytes as base64). Other lines on stdout and
everything on stderr are logs of the client, kept to explain failures. Every process has its own HOME, because clients
store offsets and logs there.
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Final, Literal

import msgspec

from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.raw import Credentials
from tests.interop.plan import Order

DRIVER_LIMIT_S: Final = 2 * PROCESS_LIMIT_S
STOP_S: Final = 20.0
LOG_TAIL_CHARS = 3_000
REPLY_PREFIX = b"re: "


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The client's start call has returned."""


class Left(msgspec.Struct, frozen=True, tag_field="event", tag="left"):
    """The client's shutdown call has returned."""


class Sent(msgspec.Struct, frozen=True, tag_field="event", tag="sent"):
    """The send result of one order; oneway sends have none. A value that the client does not report is None or "".

    `offset_id` encodes the broker's address and the physical offset.
    """

    n: str
    status: str
    id: str | None
    queue: int | None
    offset: int
    offset_id: str | None = None


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    n: str
    error: str


class Received(msgspec.Struct, frozen=True, tag_field="event", tag="received"):
    """A message as the client's listener received it."""

    topic: str
    queue: int
    offset: int
    id: str
    properties: dict[str, str | None]
    body: bytes
    tags: str | None = None
    keys: str | None = None

    @property
    def n(self) -> str:
        return self.properties.get("n") or ""


class Query(msgspec.Struct, frozen=True):
    """One lookup, a line of the input of a `query` driver. `how` is the kind of `value`."""

    n: str
    how: Literal["key", "unique", "offset_id"]
    topic: str
    value: str


class QueryResult(msgspec.Struct, frozen=True, tag_field="event", tag="query_result"):
    """The messages that the client found; `error` gives the reason if it found none."""

    n: str
    found: list[Received]
    error: str | None = None


Line = bytes | None
Event = Started | Left | Sent | Failed | Received | QueryResult
EVENT_DECODER = msgspec.json.Decoder(Event)


class Driver:
    """One running driver process. Lines with events go to `sink`, followed by None when the process has ended."""

    def __init__(self, name: str, command: Sequence[str], home: Path, sink: "SimpleQueue[tuple[Driver, Line]]") -> None:
        self.name = name
        self._sink = sink
        self._home = home
        self.log = home / "driver.log"
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"<Driver {self.name} pid={self.process.pid} status={self.process.poll()}>"

    def logs(self) -> list[Path]:
        """Return the driver's log and the logs that the client writes to its home."""
        return sorted(self._home.rglob("*.log*"))

    def send(self, orders: Iterable[Order | Query], *, leaves: bool = True) -> None:
        # A broken pipe means that the driver has exited; `wait_until` reports that.
        with suppress(BrokenPipeError):
            for order in orders:
                self._input.write(msgspec.json.encode(order) + b"\n")
            self._input.flush()
        if leaves:
            self.leave()

    def leave(self) -> None:
        with suppress(BrokenPipeError):
            self._input.close()

    def stop(self) -> None:
        """Close the input and wait for the process to exit; kill it after STOP_S."""
        self.leave()
        try:
            self.process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()

    @property
    def _input(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def _read(self, lines: IO[bytes]) -> None:
        with lines, self.log.open("ab") as log:
            for line in lines:
                if line.startswith(b'{"'):
                    self._sink.put((self, line))
                else:
                    log.write(line)
                    log.flush()
        self._sink.put((self, None))


def tail(log: Path) -> str:
    return f"--- {log}\n{log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}"


class Delivery(msgspec.Struct, frozen=True):
    member: str
    message: Received
    at: float  # time.monotonic() when the test read its line


class DriverGroup:
    """The drivers of one test. Their events are collected into attributes that tests wait for.

    Each driver has its home below `homes`. Failures contain the end of the drivers' logs and of `broker_log`.
    """

    def __init__(self, homes: Path, broker_log: Path) -> None:
        self._homes = homes
        self._broker_log = broker_log
        self._events: SimpleQueue[tuple[Driver, Line]] = SimpleQueue()
        self._drivers: list[Driver] = []
        self.started: set[str] = set()
        self.left: dict[str, float] = {}
        self.sent: dict[str, Sent] = {}
        self.failed: list[Failed] = []
        self.query_results: dict[str, QueryResult] = {}
        self.deliveries: list[Delivery] = []

    def start(
        self,
        name: str,
        command: Callable[[Path], list[str]],
        *arguments: str,
        credentials: Credentials | None = None,
        deadline_s: int = DRIVER_LIMIT_S,
    ) -> Driver:
        """Start a driver, which ends after `deadline_s`. With `credentials` its client signs its requests."""
        keys = credentials or ()
        home = self._homes / name
        home.mkdir()
        driver = Driver(name, [*command(home), *arguments, str(deadline_s), *keys], home, self._events)
        self._drivers.append(driver)
        return driver

    def wait_until(self, condition: Callable[[], bool], description: str, seconds: float = PROCESS_LIMIT_S) -> None:
        """Process events until the condition holds. Raises AssertionError, with the drivers' logs, after `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self._process_event(deadline - time.monotonic()):
                raise AssertionError(f"not within {seconds:g} s: {description}\n{self.summary()}")

    def wait_for_messages(self, wanted: set[str], seconds: float = PROCESS_LIMIT_S) -> None:
        """Process events until every message in `wanted` has been received."""
        missing = set(wanted)
        processed = 0

        def all_received() -> bool:
            nonlocal processed
            missing.difference_update(seen.message.n for seen in self.deliveries[processed:])
            processed = len(self.deliveries)
            return not missing

        try:
            self.wait_until(all_received, "all messages received", seconds)
        except AssertionError as error:
            raise AssertionError(
                f"{len(missing)} of {len(wanted)} messages are missing, among them {sorted(missing)[:10]}"
            ) from error

    def process_events(self, seconds: float) -> None:
        """Process the events of the next `seconds`."""
        deadline = time.monotonic() + seconds
        while self._process_event(deadline - time.monotonic()):
            pass

    def summary(self) -> str:
        """Return the state so far and the end of every log."""
        received = Counter(seen.member for seen in self.deliveries)
        facts = f"started {self.started}, left {set(self.left)}, sent {len(self.sent)}, received {dict(received)}"
        logs = [self._broker_log, *(log for driver in self._drivers for log in driver.logs())]
        failures = [f"failed {failure.n}: {failure.error}" for failure in self.failed[:5]]
        return "\n".join([facts, *failures, *map(repr, self._drivers), *map(tail, logs)])

    def stop(self) -> None:
        for driver in self._drivers:
            driver.leave()
        for driver in self._drivers:
            driver.stop()

    def _process_event(self, timeout_s: float) -> bool:
        try:
            driver, line = self._events.get(timeout=max(timeout_s, 0))
        except Empty:
            return False
        if line is not None:
            self._apply(driver.name, EVENT_DECODER.decode(line))
        elif driver.name not in self.left:
            raise AssertionError(f"{driver!r} exited unexpectedly\n{self.summary()}")
        return True

    def _apply(self, name: str, event: Event) -> None:
        match event:
            case Started():
                self.started.add(name)
            case Left():
                self.left[name] = time.monotonic()
            case Sent(n=n):
                self.sent[n] = event
            case Failed():
                self.failed.append(event)
            case QueryResult(n=n):
                self.query_results[n] = event
            case Received():
                self.deliveries.append(Delivery(name, event, time.monotonic()))
