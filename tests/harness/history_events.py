"""The events that the processes of a history record, and their files.

    journal = Journal(directory, "producer-0.1")
    journal.record(Sending(id="producer-0.1-17", ...))

Each process has its own file, `<name>.jsonl`, with one event per line. `record` writes an event by one system call
before it returns, so a SIGKILL loses at most the rest of the line that is being written. `at` is in nanoseconds of the
machine's monotonic clock, which all processes share: it orders events; `ms` is Unix time.

The body of a message is its id, a space, and filling.
"""

import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

SUFFIX: Final = ".jsonl"
KILLED_ITSELF: Final = "killed itself"
"""The reason that a producer records before it kills itself as planned."""
TO_DEAD_LETTERS: Final = -1
"""The level that a handler returns to make the message a dead letter."""


class TopicFilter(msgspec.Struct, frozen=True):
    """The messages of a topic that a group subscribes to: all, those with some tags, or with a `price` above a number
    (by SQL92)."""

    tags: tuple[str, ...] = ()
    above: int | None = None

    def wants(self, tag: str, price: int) -> bool:
        """Return whether the filter matches a message."""
        return (not self.tags or tag in self.tags) and (self.above is None or price > self.above)


class Event(msgspec.Struct, kw_only=True, tag_field="what", tag=str.lower, omit_defaults=True):
    """`recorder`: the process that recorded it."""

    at: int = 0
    ms: int = 0
    recorder: str = ""


# ---------------------------------------------------------------------------------------------- recorded by the run


class Began(Event, kw_only=True):
    """The first event of a run. `saves_ms`: how much of the commits a crash may lose."""

    seed: int
    profile: str
    seconds: float
    saves_ms: int


class Group(Event, kw_only=True):
    """A consumer group, or a broadcasting member. `max_times` None: a message is retried until it succeeds."""

    group: str
    orderly: bool = False
    broadcast: bool = False
    max_times: int | None = None
    topics: dict[str, TopicFilter]


class Broker(Event, kw_only=True):
    """A state of the daemon: starting, ready, killing, killed, stopping, stopped, pausing, resumed, or `ended`
    unexpectedly."""

    state: str


class Process(Event, kw_only=True):
    """A state of a client: spawned, killing, killed, stopping, stopped, pausing, resumed, or `ended` unexpectedly.

    `group`: the group of a consumer.
    """

    name: str
    state: str
    group: str = ""
    why: str = ""


class Offsets(Event, kw_only=True):
    """The broker's committed offsets: `topic@group` -> queue id -> offset."""

    table: dict[str, dict[int, int]]


class Stored(Event, kw_only=True):
    """A message in a topic at the end. `first_topic`: the original topic of one that was sent back."""

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
    """The last event of a run. `drained`: every group was drained in time; `damage`: findings of the store check."""

    drained: bool
    damage: list[str] = []


# --------------------------------------------------------------------------------------------- recorded by clients


class Ready(Event, kw_only=True):
    """The client has connected and subscribed."""


class Warned(Event, kw_only=True):
    """The SDK logged a warning or an error."""

    text: str


# ------------------------------------------------------------------------------------------- recorded by producers


class Sending(Event, kw_only=True):
    """About to be sent. `not_before_ms`: the due time, 0: none; `key` and `number`: its message group, and its position
    there."""

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
    """Acknowledged. Half messages and deferred ones have no queue offset yet: -1."""

    id: str
    queue_id: int = -1
    offset: int = -1


class Unsent(Event, kw_only=True):
    """Not acknowledged: it may be stored or not."""

    id: str
    why: str


class Decided(Event, kw_only=True):
    """A decision about a transaction: COMMIT, ROLLBACK or UNKNOWN; `by` the local transaction or the checker."""

    id: str
    state: str
    by: str


# ------------------------------------------------------------------------------------------- recorded by consumers


class Got(Event, kw_only=True):
    """A handler starts. `call`: its number in the process; `retried`: the message came from the group's retry topic."""

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
    """A handler succeeded."""

    call: int


class Threw(Event, kw_only=True):
    """A handler failed. `level`: the requested retry level; 0: default; or TO_DEAD_LETTERS."""

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
    """The event file of one process; `name` must be unique."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory
        path = directory / f"{name}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o644)

    def __repr__(self) -> str:
        return f"<Journal {self.name}>"

    def record(self, event: Event) -> None:
        """Set the event's times and process, and write it."""
        event.at, event.ms, event.recorder = time.monotonic_ns(), time.time_ns() // 1_000_000, self.name
        os.write(self._file, _encode(event) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(directory: Path) -> list[Event]:
    """Return all events of a history in order; an incomplete line at the end of a file is skipped."""
    events = [event for path in sorted(directory.glob(f"*{SUFFIX}")) for event in _events_of(path)]
    return sorted(events, key=lambda event: event.at)


def _events_of(path: Path) -> Iterator[Event]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield _decode(line)


# ------------------------------------------------------------------------------------------------------------- bodies


def body_of(message_id: str, filling: bytes) -> bytes:
    """Return the body of a message."""
    return message_id.encode() + b" " + filling


def id_of(body: bytes) -> str:
    """Return the id of the message with this body."""
    return body.partition(b" ")[0].decode(errors="replace")


def crc_of(body: bytes) -> int:
    """Return the checksum by which bodies are compared."""
    return zlib.crc32(body)
