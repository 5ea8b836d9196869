"""The events of one run, indexed for the checks of a history."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from tests.harness.history_events import (
    Began,
    Broker,
    Decided,
    Done,
    Event,
    Got,
    Group,
    Process,
    Sending,
    Sent,
    Stored,
    Threw,
)

Position = tuple[str, int, int]
"""Topic, queue id, queue offset."""
E = TypeVar("E", bound=Event)

RETRY: Final = "%RETRY%"
DEAD: Final = "%DLQ%"
SECOND_NS: Final = 1_000_000_000


class Finding(NamedTuple):
    """A violation: the check, a description, and the time in ns (0: no particular time)."""

    check: str
    text: str
    at: int = 0

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class Call(NamedTuple):
    """One call of a handler; `end` None: it never returned."""

    got: Got
    end: Done | Threw | None

    @property
    def position(self) -> Position:
        """Return the position of its message."""
        got = self.got
        return (RETRY + got.group if got.retried else got.topic, got.queue_id, got.offset)

    @property
    def is_done(self) -> bool:
        """Return whether it succeeded."""
        return isinstance(self.end, Done)

    @property
    def threw(self) -> bool:
        """Return whether it failed."""
        return isinstance(self.end, Threw)

    def __str__(self) -> str:
        got = self.got
        return f"{got.id} at {self.position} times={got.times} by {got.recorder}"


class History:
    """Tables of events, in the order of events. Broadcasting members are groups of their own."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = sorted(events, key=lambda event: event.at)
        self.saves_ms = next((began.saves_ms for began in self.of(Began)), 5_000)
        self.groups = {group.group: group for group in self.of(Group)}
        self.sending = {sending.id: sending for sending in self.of(Sending)}
        self.sent = {sent.id: sent for sent in self.of(Sent)}
        self.decided: defaultdict[str, set[str]] = defaultdict(set)
        for decided in self.of(Decided):
            self.decided[decided.id].add(decided.state)
        self.stored = {(record.topic, record.queue_id, record.offset): record for record in self.of(Stored)}
        self.records_of: defaultdict[str, list[Stored]] = defaultdict(list)
        for _, record in sorted(self.stored.items()):
            self.records_of[record.topic].append(record)
        self.copies: defaultdict[tuple[str, str], list[Stored]] = defaultdict(list)
        for record in self.stored.values():
            self.copies[record.topic, record.id].append(record)
        ends = {(event.recorder, event.call): event for event in self.events if isinstance(event, Done | Threw)}
        self.calls_of: defaultdict[str, list[Call]] = defaultdict(list)
        for got in self.of(Got):
            self.calls_of[got.group].append(Call(got, ends.get((got.recorder, got.call))))
        self.faults = self.of(Broker)
        self.processes = self.of(Process)
        self.ends_ns = {
            event.name: event.at for event in self.processes if event.state in {"killing", "stopped", "ended"}
        }

    def __repr__(self) -> str:
        return f"<History {len(self.events)} events>"

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    def calls(self) -> list[Call]:
        """Return the calls of all groups."""
        return [call for calls in self.calls_of.values() for call in calls]

    def wants(self, group: Group, record: Stored | Got | Sending) -> bool:
        """Return whether a group subscribes to a message of one of its topics."""
        topic_filter = group.topics.get(record.topic)
        return topic_filter is not None and topic_filter.wants(record.tag, record.price)

    def is_committed(self, message_id: str) -> bool:
        """Return whether the transaction was committed."""
        return "COMMIT" in self.decided[message_id]

    def is_rolled_back(self, message_id: str) -> bool:
        """Return whether the transaction was rolled back."""
        return "ROLLBACK" in self.decided[message_id]
