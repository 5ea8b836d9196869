"""The checks of a history: one good history, and violations of each guarantee."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.harness.history import CHECKS, Report, check_history
from tests.harness.history_events import (
    TO_DEAD_LETTERS,
    Began,
    Broker,
    Decided,
    Done,
    Ended,
    Event,
    Got,
    Group,
    Journal,
    Offsets,
    Process,
    Sending,
    Sent,
    Stored,
    Threw,
    TopicFilter,
    Unsent,
    Warned,
    body_of,
    crc_of,
    id_of,
    read,
)

E = TypeVar("E", bound=Event)
Change = Callable[["HistoryBuilder"], object]
S = 1_000


class HistoryBuilder:
    """Events with a millisecond between them; `pass_ms` advances the time."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_ms = 1_000_000

    def record(self, event: E, recorder: str = "run") -> E:
        self.now_ms += 1
        return self.at(self.now_ms, event, recorder)

    def at(self, ms: int, event: E, recorder: str = "run") -> E:
        event.ms, event.at, event.recorder = ms, ms * 1_000_000, recorder
        self.events.append(event)
        return event

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms

    # events of a history

    def send(self, name: str, topic: str, offset: int = -1, queue_id: int = 0, **more: object) -> None:
        sending = Sending(id=name, topic=topic, crc=len(name), tag="red", price=7)
        for field, value in more.items():
            setattr(sending, field, value)
        self.record(sending, "producer-0.0")
        self.record(Sent(id=name, queue_id=queue_id if offset >= 0 else -1, offset=offset), "producer-0.0")

    def handle(self, group: str, name: str, topic: str, offset: int, end: Event | None, **more: object) -> None:
        recorder = str(more.pop("recorder", f"{group}-0.0"))
        call = sum(isinstance(event, Got) for event in self.events)
        got = Got(group=group, call=call, topic=topic, queue_id=0, offset=offset, id=name, crc=len(name))
        got.tag, got.price = "red", 7
        for field, value in more.items():
            setattr(got, field, value)
        self.record(got, recorder)
        if isinstance(end, Done | Threw):
            end.call = call
            self.record(end, recorder)

    def store(self, name: str, topic: str, offset: int, ms: int, **more: object) -> None:
        record = Stored(topic=topic, queue_id=0, offset=offset, id=name, crc=len(name), tag="red", price=7, store_ms=ms)
        for field, value in more.items():
            setattr(record, field, value)
        self.record(record)

    # changes to it

    def one(self, kind: type[E], **fields: object) -> E:
        """Return the only event of this type with these fields."""
        (found,) = [
            event
            for event in self.events
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
        ]
        return found

    def drop(self, kind: type[Event], **fields: object) -> None:
        self.events.remove(self.one(kind, **fields))

    def again(self, event: E, later_ms: int, **fields: object) -> E:
        """Add a copy of an event later, with changed fields."""
        values = {name: getattr(event, name) for name in event.__struct_fields__} | fields
        other = type(event)(**values)
        return self.at(event.ms + later_ms, other, event.recorder)


DONE = 0


def good() -> HistoryBuilder:
    """Return a history with all allowed events: retries, a dead letter, order, a delay, transactions, and a crash with
    a duplicate."""
    it = HistoryBuilder()
    it.record(Began(seed=1, profile="all", seconds=1, saves_ms=5_000))
    it.record(Group(group="workers", max_times=1, topics={"Plain": TopicFilter(), "Bargains": TopicFilter()}))
    it.record(Group(group="ordered", orderly=True, topics={"Keyed": TopicFilter()}))
    it.record(Group(group="choosy", topics={"Plain": TopicFilter(above=8)}))
    for name in ("workers-0.0", "ordered-0.0", "ordered-1.0"):
        it.record(Process(name=name, state="spawned", group=name.partition("-")[0]))
    it.pass_ms(20 * S)
    it.send("p-1", "Plain", 0)
    it.handle("workers", "p-1", "Plain", 0, Done(call=DONE))
    it.send("p-2", "Plain", 1)
    it.handle("workers", "p-2", "Plain", 1, Threw(call=DONE))
    it.pass_ms(S)
    it.handle("workers", "p-2", "Plain", 0, Threw(call=DONE), times=1, retried=True)
    it.send("p-3", "Plain", not_before_ms=it.now_ms + S)
    due_ms = it.now_ms + S
    it.pass_ms(2 * S)
    it.handle("workers", "p-3", "Plain", 2, Done(call=DONE))
    for offset in range(3):
        it.send(f"k-{offset}", "Keyed", offset, key="a", number=offset)
    it.handle("ordered", "k-0", "Keyed", 0, Threw(call=DONE))
    it.handle("ordered", "k-0", "Keyed", 0, Done(call=DONE), times=1)
    it.record(Offsets(table={"Keyed@ordered": {0: 1}}))
    it.handle("ordered", "k-1", "Keyed", 1, Done(call=DONE))
    it.pass_ms(10 * S)
    it.record(Broker(state="killing"))
    it.record(Broker(state="killed"))
    it.record(Broker(state="ready"))
    it.handle("ordered", "k-1", "Keyed", 1, Done(call=DONE), recorder="ordered-1.0")
    it.handle("ordered", "k-2", "Keyed", 2, Done(call=DONE), recorder="ordered-1.0")
    it.record(Offsets(table={"Keyed@ordered": {0: 3}}))
    it.pass_ms(20 * S)
    for name, state in (("t-1", "COMMIT"), ("t-2", "ROLLBACK")):
        it.send(name, "Bargains", transaction=True)
        it.record(Decided(id=name, state="UNKNOWN", by="local"), "producer-0.0")
        it.record(Decided(id=name, state=state, by="checker"), "producer-0.0")
    it.handle("workers", "t-1", "Bargains", 0, Done(call=DONE))
    it.record(Sending(id="p-4", topic="Plain", crc=3, tag="red", price=7), "producer-0.0")
    it.record(Unsent(id="p-4", why="RequestTimeout"), "producer-0.0")
    it.store("p-1", "Plain", 0, due_ms)
    it.store("p-2", "Plain", 1, due_ms)
    it.store("p-3", "Plain", 2, due_ms)
    it.store("p-2", "%RETRY%workers", 0, due_ms, times=1, first_topic="Plain")
    it.store("p-2", "%DLQ%workers", 0, due_ms, times=2, first_topic="Plain")
    for offset in range(3):
        it.store(f"k-{offset}", "Keyed", offset, due_ms)
    it.store("t-1", "Bargains", 0, due_ms)
    it.record(Ended(drained=True))
    return it


def report_of(history: HistoryBuilder) -> Report:
    return check_history(history.events)


def test_a_good_history_has_no_findings() -> None:
    """There are no findings, and duplicates are counted by their cause."""
    report = report_of(good())
    assert report.findings == []
    assert report.duplicates == {("workers", "failed"): 1, ("ordered", "failed"): 1, ("ordered", "broker"): 1}
    assert report.summary() == (
        "9 sent, 8 acknowledged, 10 delivered, 1 faults, 2/2 ms late, duplicates: broker=1 failed=2"
    )


def _ends_unexpectedly(it: HistoryBuilder) -> None:
    it.record(Process(name="workers-0.0", state="ended", group="workers", why="exit code 1"))


def _breaks_order(it: HistoryBuilder) -> None:
    it.one(Got, id="k-2").at = it.one(Got, id="k-0", times=0).at - 1


def _runs_two_at_once(it: HistoryBuilder) -> None:
    second = it.one(Got, id="k-1", recorder="ordered-1.0")
    done = it.one(Done, call=it.one(Got, id="k-1", recorder="ordered-0.0").call)
    second.at = done.at - 1


def _offset_goes_back(it: HistoryBuilder) -> None:
    it.pass_ms(60 * S)
    it.record(Offsets(table={"Keyed@ordered": {0: 2}}))


def _offset_goes_back_too_far(it: HistoryBuilder) -> None:
    it.again(it.one(Broker, state="killing"), 3)
    it.at(it.one(Broker, state="ready").ms + 4, Offsets(table={"Keyed@ordered": {0: 0}}))


def _delivered_twice(it: HistoryBuilder) -> None:
    got = it.one(Got, id="t-1")
    it.again(got, 30, call=77)
    it.at(got.ms + 31, Done(call=77), got.recorder)


def _stored_twice(it: HistoryBuilder) -> None:
    it.pass_ms(100 * S)
    it.send("p-9", "Plain", 3)
    it.handle("workers", "p-9", "Plain", 3, Done(call=DONE))
    it.store("p-9", "Plain", 3, it.now_ms)
    it.store("p-9", "Plain", 4, it.now_ms)


def _delivered_twice_after_clean_stop(it: HistoryBuilder) -> None:
    it.pass_ms(100 * S)
    it.send("p-9", "Plain", not_before_ms=it.now_ms + S)
    it.record(Broker(state="stopping"))
    it.record(Broker(state="ready"))
    it.pass_ms(S)
    for offset in (3, 4):
        it.handle("workers", "p-9", "Plain", offset, Done(call=DONE))
        it.store("p-9", "Plain", offset, it.now_ms)


def _has_two_dead_letters(it: HistoryBuilder) -> None:
    """A member sends a message to the dead letters itself; each copy has the maximum number of attempts."""
    it.pass_ms(100 * S)
    it.send("p-9", "Plain", 3)
    it.handle("workers", "p-9", "Plain", 3, Threw(call=DONE, level=TO_DEAD_LETTERS))
    it.store("p-9", "Plain", 3, it.now_ms)
    for offset in (1, 2):
        it.store("p-9", "%DLQ%workers", offset, it.now_ms, times=2, first_topic="Plain")


def _redelivered_without_a_record(it: HistoryBuilder) -> None:
    it.again(it.one(Got, id="p-2", times=0), 30, call=77, times=1)
    it.at(it.one(Got, call=77).ms + 1, Done(call=77), "workers-0.0")


BROKEN: dict[str, list[Change]] = {
    "ended": [
        _ends_unexpectedly,
        lambda it: it.drop(Ended),
        lambda it: setattr(it.one(Ended), "drained", False),
        lambda it: setattr(it.one(Ended), "damage", ["a queue"]),
        lambda it: it.record(Broker(state="ended")),
    ],
    "intact": [
        lambda it: it.drop(Sending, id="p-1"),
        lambda it: setattr(it.one(Got, id="p-1"), "crc", 99),
        lambda it: setattr(it.one(Got, id="p-1"), "tag", "blue"),
        lambda it: setattr(it.one(Stored, id="p-1"), "crc", 99),
        lambda it: setattr(it.one(Stored, id="p-1"), "price", 1),
        lambda it: setattr(it.one(Stored, topic="%DLQ%workers"), "first_topic", "Keyed"),
    ],
    "kept": [
        lambda it: it.drop(Stored, id="p-1"),
        lambda it: setattr(it.one(Sent, id="p-1"), "offset", 1),
        lambda it: setattr(it.one(Got, id="p-1"), "offset", 1),
        lambda it: it.drop(Stored, topic="%RETRY%workers"),
    ],
    "gapless": [lambda it: it.drop(Stored, id="k-1"), lambda it: setattr(it.one(Stored, id="t-1"), "offset", 1)],
    "handled": [
        lambda it: it.drop(Done, call=it.one(Got, id="p-1").call),
        lambda it: it.drop(Stored, topic="%DLQ%workers"),
        lambda it: setattr(it.one(Group, group="choosy"), "topics", {"Plain": TopicFilter(above=6)}),
    ],
    "wanted": [lambda it: setattr(it.one(Got, id="p-1"), "group", "choosy")],
    "retried": [
        lambda it: setattr(it.one(Got, id="p-2", times=1), "times", 2),
        lambda it: setattr(it.one(Got, id="p-2", times=1), "ms", it.one(Got, id="p-2", times=0).ms + 900),
        lambda it: setattr(it.one(Stored, topic="%RETRY%workers"), "times", 3),
        lambda it: setattr(it.one(Stored, topic="%DLQ%workers"), "times", 1),
        lambda it: setattr(it.one(Stored, topic="%DLQ%workers"), "times", 5),
        lambda it: setattr(it.one(Group, group="workers"), "max_times", None),
    ],
    "in_order": [_breaks_order, _runs_two_at_once],
    "in_rows": [
        lambda it: setattr(it.one(Sent, id="k-2"), "queue_id", 1),
        lambda it: setattr(it.one(Sent, id="k-2"), "offset", 0),
    ],
    "in_time": [
        lambda it: setattr(it.one(Stored, id="p-3"), "store_ms", it.one(Sending, id="p-3").not_before_ms - 1),
        lambda it: setattr(it.one(Got, id="p-3"), "ms", it.one(Sending, id="p-3").not_before_ms - 1),
    ],
    "atomic": [
        lambda it: it.drop(Stored, id="t-1"),
        lambda it: it.store("t-2", "Bargains", 1, it.now_ms),
        lambda it: it.drop(Decided, id="t-1", by="checker"),
        lambda it: it.drop(Decided, id="t-2", by="checker"),
        lambda it: it.record(Decided(id="t-1", state="ROLLBACK", by="checker")),
    ],
    "forward": [_offset_goes_back, _offset_goes_back_too_far],
    "explained": [
        _delivered_twice,
        _stored_twice,
        _delivered_twice_after_clean_stop,
        _has_two_dead_letters,
        _redelivered_without_a_record,
    ],
}


@pytest.mark.parametrize(
    ("check", "change"), [(check, change) for check, changes in BROKEN.items() for change in changes]
)
def test_a_violation_is_found(check: str, change: Change) -> None:
    """The check of the guarantee finds the violation, whatever other checks find."""
    history = good()
    change(history)
    assert check in {finding.check for finding in report_of(history).findings}


def test_every_check_can_fail() -> None:
    """For each check there is a history with a violation."""
    assert list(BROKEN) == [check.__name__ for check in CHECKS]


def _trouble(it: HistoryBuilder) -> Iterable[tuple[Event, str]]:
    yield Broker(state="pausing"), "broker"
    yield Process(name="workers-0.0", state="killing", group="workers"), "killed"
    yield Process(name="workers-1.0", state="spawned", group="workers"), "members"
    yield Warned(text="disconnected"), "trouble"


@pytest.mark.parametrize("number", range(4))
def test_a_fault_of_its_group_explains_a_duplicate_delivery(number: int) -> None:
    """Each cause explains it; the same fault in another group does not."""
    history = good()
    _delivered_twice(history)
    event, cause = list(_trouble(history))[number]
    history.at(history.one(Got, id="t-1", call=77).ms - 1, event, "workers-0.0")
    report = report_of(history)
    assert report.findings == []
    assert report.duplicates["workers", cause] == 1


def test_a_crash_explains_duplicates_of_deferred_messages() -> None:
    """After a crash, delays and transactions may complete twice; after a clean stop they do not."""
    history = good()
    _delivered_twice_after_clean_stop(history)
    history.one(Broker, state="stopping").state = "killing"
    report = report_of(history)
    assert report.findings == []
    assert report.duplicates["Plain", "crash"] == report.duplicates["workers", "stored"] == 1


def test_each_duplicate_of_a_crash_may_become_a_dead_letter() -> None:
    """There is one dead letter for each handler that requested it."""
    history = good()
    _has_two_dead_letters(history)
    history.record(Broker(state="killing"))
    history.record(Broker(state="ready"))
    history.one(Sending, id="p-9").not_before_ms = history.one(Got, id="p-9").ms
    history.handle("workers", "p-9", "Plain", 4, Threw(call=DONE, level=TO_DEAD_LETTERS))
    history.store("p-9", "Plain", 4, history.now_ms)
    report = report_of(history)
    assert report.findings == []
    assert report.duplicates["%DLQ%workers", "failed"] == report.duplicates["Plain", "crash"] == 1


def test_a_crash_may_lose_the_last_commits() -> None:
    """The loss is limited to the interval of saves."""
    history = good()
    crash = history.one(Broker, state="killing")
    history.at(crash.ms - 10, Offsets(table={"Keyed@ordered": {0: 2}}))
    history.at(crash.ms + 3, Offsets(table={"Keyed@ordered": {0: 1}}))
    history.at(crash.ms + 3, Broker(state="killing"))
    history.at(crash.ms + 60 * S, Offsets(table={"Keyed@ordered": {0: 1}}))
    history.drop(Offsets, table={"Keyed@ordered": {0: 3}})
    assert report_of(history).findings == []


def test_a_journal_returns_the_recorded_events(tmp_path: Path) -> None:
    """Files are read as one; an incomplete line at the end is skipped."""
    first, second = Journal(tmp_path, "a"), Journal(tmp_path, "b")
    first.record(Sending(id="x", topic="Plain", crc=1))
    second.record(Offsets(table={"T@g": {0: 5}}))
    first.record(Sent(id="x", queue_id=0, offset=3))
    first.close()
    second.close()
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'{"what":"sent","id"')
    sending, offsets, sent = read(tmp_path)
    assert isinstance(sending, Sending)
    assert (sending.recorder, sending.topic) == ("a", "Plain")
    assert isinstance(offsets, Offsets)
    assert offsets.table == {"T@g": {0: 5}}
    assert isinstance(sent, Sent)
    assert sending.at < offsets.at < sent.at
    with pytest.raises(FileExistsError):
        Journal(tmp_path, "a")


def test_a_body_contains_the_message_id() -> None:
    """The id does not depend on the filling."""
    assert id_of(body_of("producer-0.1-17", b"\x00 \xff")) == "producer-0.1-17"
    assert crc_of(b"a") != crc_of(b"b")
