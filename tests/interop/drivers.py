"""Driver processes: an official client behind one command line and one language of lines, whatever it is written in.

    <driver> produce|consume|retry|orderly|broadcast|query|request|reply|transact NAMESRV TOPIC GROUP DEADLINE_SECONDS

`produce` reads orders (plan.py) from its input, one JSON object a line, and sends them as they say. `consume`
subscribes to all tags in cluster mode; Java's to several topics with commas between them, Java's and Go's also to
`TOPIC where EXPRESSION`, by SQL92. `retry`, `orderly` and `broadcast` consume so; a message with the property `fails`
fails as often, and where the client can be told so a second failure is the last one. `query`, which only Java's has,
reads questions and answers each. `request` sends
each order as a request and tells its reply as received; `reply` consumes, and replies with ANSWERS and the body that it
got; both are Java's and Go's. `transact`, theirs too, sends each order in a transaction that ends as its properties
`local` and, when it is asked, `check` say: commit, rollback or unknown.
All leave in the client's own clean way when their input ends, and die with status 3 at their deadline. On stdout
each prints one JSON object a line, `event` telling which (the structs below, bytes as base64); other lines there and
all of stderr are logs of the client, kept to explain a failure. Every process has a HOME of its own, since clients keep
offsets and logs there.
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
from typing import IO, Literal

import msgspec

from tests.interop.plan import Order

DRIVER_DEADLINE_S = 240
FACT_DEADLINE_S = 20.0
LOG_TAIL_CHARS = 3_000
ANSWERS = b"re: "


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The client's own start call has returned."""


class Left(msgspec.Struct, frozen=True, tag_field="event", tag="left"):
    """The client's own shutdown call has returned."""


class Sent(msgspec.Struct, frozen=True, tag_field="event", tag="sent"):
    """The send result of one order; oneway sends have none. What a client does not tell is None, or an empty id.

    `place` is the offset id, which names broker and physical offset.
    """

    n: str
    status: str
    id: str | None
    queue: int | None
    offset: int
    place: str | None = None


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    n: str
    error: str


class Received(msgspec.Struct, frozen=True, tag_field="event", tag="received"):
    """A message as the client's listener got it."""

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


class Question(msgspec.Struct, frozen=True):
    """One look-up, a line of a querying driver's input. `what`: a key, a unique id or an offset id, as `how` says."""

    n: str
    how: Literal["key", "unique", "place"]
    topic: str
    what: str


class Answered(msgspec.Struct, frozen=True, tag_field="event", tag="answer"):
    """What the client found; `error` tells why if that is nothing."""

    n: str
    found: list[Received]
    error: str | None = None


Line = bytes | None
Event = Started | Left | Sent | Failed | Received | Answered
EVENT_DECODER = msgspec.json.Decoder(Event)


class Driver:
    """One running driver process; the lines of its events go to `sink`, and a None when it has ended."""

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
        """Its own log, and those that the client keeps at home."""
        return sorted(self._home.rglob("*.log*"))

    def send(self, orders: Iterable[Order | Question], *, leaves: bool = True) -> None:
        # A pipe that breaks means that the driver has died, which whoever waits for its facts is told.
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
        """Leave if still there, and be gone either way."""
        self.leave()
        try:
            self.process.wait(timeout=FACT_DEADLINE_S)
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
    at: float  # time.monotonic() when its line was read here


class Stage:
    """The drivers of one case and all that they have said, folded into facts to wait for.

    Drivers get their homes below `homes`; a failure shows the end of their logs and of `broker_log`.
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
        self.answers: dict[str, Answered] = {}
        self.deliveries: list[Delivery] = []

    def start(self, name: str, command: Callable[[Path], list[str]], *arguments: str) -> Driver:
        home = self._homes / name
        home.mkdir()
        driver = Driver(name, [*command(home), *arguments, str(DRIVER_DEADLINE_S)], home, self._events)
        self._drivers.append(driver)
        return driver

    def wait_until(self, fact: Callable[[], bool], what: str, seconds: float = FACT_DEADLINE_S) -> None:
        """Take in events until `fact()` holds; AssertionError with the drivers' logs when it does not in time."""
        deadline = time.monotonic() + seconds
        while not fact():
            if not self._take_one(deadline - time.monotonic()):
                raise AssertionError(f"not within {seconds:g} s: {what}\n{self.summary()}")

    def wait_for_messages(self, wanted: set[str], seconds: float = FACT_DEADLINE_S) -> None:
        """Take in events until each message of those names has been received."""
        missing = set(wanted)
        folded = 0

        def all_received() -> bool:
            nonlocal folded
            missing.difference_update(seen.message.n for seen in self.deliveries[folded:])
            folded = len(self.deliveries)
            return not missing

        try:
            self.wait_until(all_received, "all messages received", seconds)
        except AssertionError as error:
            raise AssertionError(
                f"{len(missing)} of {len(wanted)} are missing, such as {sorted(missing)[:10]}"
            ) from error

    def listen(self, seconds: float) -> None:
        """Take in what is said within `seconds`."""
        deadline = time.monotonic() + seconds
        while self._take_one(deadline - time.monotonic()):
            pass

    def summary(self) -> str:
        """What is known so far, and the end of every log."""
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

    def _take_one(self, patience_s: float) -> bool:
        try:
            driver, line = self._events.get(timeout=max(patience_s, 0))
        except Empty:
            return False
        if line is not None:
            self._fold(driver.name, EVENT_DECODER.decode(line))
        elif driver.name not in self.left:
            raise AssertionError(f"{driver!r} has died\n{self.summary()}")
        return True

    def _fold(self, name: str, event: Event) -> None:
        match event:
            case Started():
                self.started.add(name)
            case Left():
                self.left[name] = time.monotonic()
            case Sent(n=n):
                self.sent[n] = event
            case Failed():
                self.failed.append(event)
            case Answered(n=n):
                self.answers[n] = event
            case Received():
                self.deliveries.append(Delivery(name, event, time.monotonic()))
