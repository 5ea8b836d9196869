"""What the processes of a history tell: events, and the files in which they stand.

    journal = Journal(directory, "producer-0.1")
    journal.tell(Sending(id="producer-0.1-17", ...))

Each process has a file of its own, `<name>.jsonl`, an event a line. An event is written by one system call before
`tell` comes back, so a SIGKILL takes nothing that was told, but for half of the line that was under way. `at` counts
nanoseconds of the machine's monotonic clock, which all processes share: it orders events; `ms` is Unix time.

A message says in its body who it is: its id, a space, and something to fill it.
"""

import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

SUFFIX: Final = ".jsonl"
BY_ITSELF: Final = "killed itself"
"""Why a producer is gone that has planned it."""
TO_DEAD_LETTERS: Final = -1
"""The level that a handler asks for which wants to see a message no more."""


class Wish(msgspec.Struct, frozen=True):
    """What a group wants of a topic: everything, one of some tags, or a `price` above a number (by SQL92)."""

    tags: tuple[str, ...] = ()
    above: int | None = None

    def wants(self, tag: str, price: int) -> bool:
        """Whether it wants this message."""
        return (not self.tags or tag in self.tags) and (self.above is None or price > self.above)


class Event(msgspec.Struct, kw_only=True, tag_field="what", tag=str.lower, omit_defaults=True):
    """`who`: the process that tells."""

    at: int = 0
    ms: int = 0
    who: str = ""


# ---------------------------------------------------------------------------------------------------- told by the run


class Began(Event, kw_only=True):
    """The first of a run. `saves_ms`: how much of the commits a crash may take back."""

    seed: int
    profile: str
    seconds: float
    saves_ms: int


class Group(Event, kw_only=True):
    """A consumer group, or a broadcasting member. `max_times` None: a message is tried until it succeeds."""

    group: str
    orderly: bool = False
    broadcast: bool = False
    max_times: int | None = None
    topics: dict[str, Wish]


class Broker(Event, kw_only=True):
    """Of the daemon: starting, ready, killing, killed, stopping, stopped, pausing, resumed; `ended`: by itself."""

    state: str


class Process(Event, kw_only=True):
    """Of a client: spawned, killing, killed, stopping, stopped, pausing, resumed; `ended`: by itself. `group`: of what
    consumes."""

    name: str
    state: str
    group: str = ""
    why: str = ""


class Offsets(Event, kw_only=True):
    """Committed offsets as the broker has them: `topic@group` -> queue id -> offset."""

    table: dict[str, dict[int, int]]


class Stored(Event, kw_only=True):
    """A message as it lies in the topic at the end. `first_topic`: of one that was sent back."""

    topic: str
    queue_id: int
    offset: int
    id: str
    crc: int
    tag: str = ""
    price: int = 0
    times: int = 0
    store_ms: int = 0
    first_topic: str = ""


class Ended(Event, kw_only=True):
    """The last of a run. `drained`: everybody had everything in time; `damage`: what a check of the store finds."""

    drained: bool
    damage: list[str] = []


# --------------------------------------------------------------------------------------------------- told by clients


class Ready(Event, kw_only=True):
    """It takes part."""


class Warned(Event, kw_only=True):
    """The SDK logs a warning, or worse."""

    text: str


# ------------------------------------------------------------------------------------------------- told by producers


class Sending(Event, kw_only=True):
    """About to be sent. `not_before_ms`: when it may come, 0: at once; `key` and `number`: its message group, and its
    place there."""

    id: str
    topic: str
    crc: int
    tag: str = ""
    price: int = 0
    key: str = ""
    number: int = 0
    not_before_ms: int = 0
    transaction: bool = False


class Sent(Event, kw_only=True):
    """Acknowledged. Half messages, and those that come later, have no place of their own yet: -1."""

    id: str
    queue_id: int = -1
    offset: int = -1


class Unsent(Event, kw_only=True):
    """Not acknowledged, it may be stored or not."""

    id: str
    why: str


class Decided(Event, kw_only=True):
    """How a transaction ends: COMMIT, ROLLBACK, or UNKNOWN; said by the local transaction or by the checker."""

    id: str
    state: str
    by: str


# ------------------------------------------------------------------------------------------------- told by consumers


class Got(Event, kw_only=True):
    """A handler begins. `call` counts in its process; `retried`: it came from the group's retry topic."""

    group: str
    call: int
    topic: str
    queue_id: int
    offset: int
    id: str
    crc: int
    tag: str = ""
    price: int = 0
    times: int = 0
    retried: bool = False


class Done(Event, kw_only=True):
    """A handler succeeds."""

    call: int


class Threw(Event, kw_only=True):
    """A handler fails. `level`: what it asks for, 0: nothing, or TO_DEAD_LETTERS."""

    call: int
    level: int = 0


EVENTS: Final = (
    Began | Group | Broker | Process | Offsets | Stored | Ended
    | Sending | Sent | Unsent | Decided
    | Got | Done | Threw
    | Ready | Warned
)  # fmt: skip
_decode: Final = msgspec.json.Decoder(EVENTS).decode
_encode: Final = msgspec.json.Encoder().encode


class Journal:
    """The file of one process; `name` must not be anybody else's."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory
        path = directory / f"{name}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o644)

    def __repr__(self) -> str:
        return f"<Journal {self.name}>"

    def tell(self, event: Event) -> None:
        """Stamp the event, and write it."""
        event.at, event.ms, event.who = time.monotonic_ns(), time.time_ns() // 1_000_000, self.name
        os.write(self._file, _encode(event) + b"\n")

    def close(self) -> None:
        """Nothing more will be told."""
        os.close(self._file)


def read(directory: Path) -> list[Event]:
    """All events of a history, in their order; half a line at the end of a file was never told."""
    events = [event for path in sorted(directory.glob(f"*{SUFFIX}")) for event in _events_of(path)]
    return sorted(events, key=lambda event: event.at)


def _events_of(path: Path) -> Iterator[Event]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield _decode(line)


# ------------------------------------------------------------------------------------------------------------- bodies


def body_of(message_id: str, filling: bytes) -> bytes:
    """The body of a message."""
    return message_id.encode() + b" " + filling


def id_of(body: bytes) -> str:
    """Which message this is the body of."""
    return body.partition(b" ")[0].decode(errors="replace")


def crc_of(body: bytes) -> int:
    """By which bodies are compared."""
    return zlib.crc32(body)
