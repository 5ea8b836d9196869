"""The judge of histories: one good history, and for each promise what breaks it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.harness.history import CHECKS, Report, judge
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
    Unsent,
    Warned,
    Wish,
    body_of,
    crc_of,
    id_of,
    read,
)

E = TypeVar("E", bound=Event)
Change = Callable[["Story"], object]
S = 1_000


class Story:
    """Events, a millisecond after each other; `pass_ms` lets time go by."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_ms = 1_000_000

    def tell(self, event: E, who: str = "run") -> E:
        self.now_ms += 1
        return self.at(self.now_ms, event, who)

    def at(self, ms: int, event: E, who: str = "run") -> E:
        event.ms, event.at, event.who = ms, ms * 1_000_000, who
        self.events.append(event)
        return event

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms

    # what happens

    def send(self, name: str, topic: str, offset: int = -1, queue_id: int = 0, **more: object) -> None:
        sending = Sending(id=name, topic=topic, crc=len(name), tag="red", price=7)
        for field, value in more.items():
            setattr(sending, field, value)
        self.tell(sending, "producer-0.0")
        self.tell(Sent(id=name, queue_id=queue_id if offset >= 0 else -1, offset=offset), "producer-0.0")

    def handle(self, group: str, name: str, topic: str, offset: int, end: Event | None, **more: object) -> None:
        who = str(more.pop("who", f"{group}-0.0"))
        call = sum(isinstance(event, Got) for event in self.events)
        got = Got(group=group, call=call, topic=topic, queue_id=0, offset=offset, id=name, crc=len(name))
        got.tag, got.price = "red", 7
        for field, value in more.items():
            setattr(got, field, value)
        self.tell(got, who)
        if isinstance(end, Done | Threw):
            end.call = call
            self.tell(end, who)

    def store(self, name: str, topic: str, offset: int, ms: int, **more: object) -> None:
        record = Stored(topic=topic, queue_id=0, offset=offset, id=name, crc=len(name), tag="red", price=7, store_ms=ms)
        for field, value in more.items():
            setattr(record, field, value)
        self.tell(record)

    # how it is changed

    def one(self, kind: type[E], **fields: object) -> E:
        """The event that is so."""
        (found,) = [
            event
            for event in self.events
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
        ]
        return found

    def drop(self, kind: type[Event], **fields: object) -> None:
        self.events.remove(self.one(kind, **fields))

    def again(self, event: E, later_ms: int, **fields: object) -> E:
        """One more like this one."""
        values = {name: getattr(event, name) for name in event.__struct_fields__} | fields
        other = type(event)(**values)
        return self.at(event.ms + later_ms, other, event.who)


DONE = 0


def good() -> Story:
    """Everything that may be: retries, a dead letter, order, a delay, transactions, a crash that repeats something."""
    it = Story()
    it.tell(Began(seed=1, profile="all", seconds=1, saves_ms=5_000))
    it.tell(Group(group="workers", max_times=1, topics={"Plain": Wish(), "Bargains": Wish()}))
    it.tell(Group(group="ordered", orderly=True, topics={"Keyed": Wish()}))
    it.tell(Group(group="choosy", topics={"Plain": Wish(above=8)}))
    for name in ("workers-0.0", "ordered-0.0", "ordered-1.0"):
        it.tell(Process(name=name, state="spawned", group=name.partition("-")[0]))
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
    it.tell(Offsets(table={"Keyed@ordered": {0: 1}}))
    it.handle("ordered", "k-1", "Keyed", 1, Done(call=DONE))
    it.pass_ms(10 * S)
    it.tell(Broker(state="killing"))
    it.tell(Broker(state="killed"))
    it.tell(Broker(state="ready"))
    it.handle("ordered", "k-1", "Keyed", 1, Done(call=DONE), who="ordered-1.0")
    it.handle("ordered", "k-2", "Keyed", 2, Done(call=DONE), who="ordered-1.0")
    it.tell(Offsets(table={"Keyed@ordered": {0: 3}}))
    it.pass_ms(20 * S)
    for name, state in (("t-1", "COMMIT"), ("t-2", "ROLLBACK")):
        it.send(name, "Bargains", transaction=True)
        it.tell(Decided(id=name, state="UNKNOWN", by="local"), "producer-0.0")
        it.tell(Decided(id=name, state=state, by="checker"), "producer-0.0")
    it.handle("workers", "t-1", "Bargains", 0, Done(call=DONE))
    it.tell(Sending(id="p-4", topic="Plain", crc=3, tag="red", price=7), "producer-0.0")
    it.tell(Unsent(id="p-4", why="RequestTimeout"), "producer-0.0")
    it.store("p-1", "Plain", 0, due_ms)
    it.store("p-2", "Plain", 1, due_ms)
    it.store("p-3", "Plain", 2, due_ms)
    it.store("p-2", "%RETRY%workers", 0, due_ms, times=1, first_topic="Plain")
    it.store("p-2", "%DLQ%workers", 0, due_ms, times=2, first_topic="Plain")
    for offset in range(3):
        it.store(f"k-{offset}", "Keyed", offset, due_ms)
    it.store("t-1", "Bargains", 0, due_ms)
    it.tell(Ended(drained=True))
    return it


def report_of(story: Story) -> Report:
    return judge(story.events)


def test_a_good_history_is_found_good() -> None:
    """No findings, and what came again is counted by its cause."""
    report = report_of(good())
    assert report.findings == []
    assert report.duplicates == {("workers", "failed"): 1, ("ordered", "failed"): 1, ("ordered", "broker"): 1}
    assert report.summary() == ("9 sent, 8 acknowledged, 10 delivered, 1 blows, 2/2 ms late, again: broker=1 failed=2")


def _ends_by_itself(it: Story) -> None:
    it.tell(Process(name="workers-0.0", state="ended", group="workers", why="exit code 1"))


def _breaks_order(it: Story) -> None:
    it.one(Got, id="k-2").at = it.one(Got, id="k-0", times=0).at - 1


def _runs_two_at_once(it: Story) -> None:
    second = it.one(Got, id="k-1", who="ordered-1.0")
    done = it.one(Done, call=it.one(Got, id="k-1", who="ordered-0.0").call)
    second.at = done.at - 1


def _goes_back(it: Story) -> None:
    it.pass_ms(60 * S)
    it.tell(Offsets(table={"Keyed@ordered": {0: 2}}))


def _goes_back_too_far(it: Story) -> None:
    it.again(it.one(Broker, state="killing"), 3)
    it.at(it.one(Broker, state="ready").ms + 4, Offsets(table={"Keyed@ordered": {0: 0}}))


def _comes_twice(it: Story) -> None:
    got = it.one(Got, id="t-1")
    it.again(got, 30, call=77)
    it.at(got.ms + 31, Done(call=77), got.who)


def _lies_twice(it: Story) -> None:
    it.pass_ms(100 * S)
    it.send("p-9", "Plain", 3)
    it.handle("workers", "p-9", "Plain", 3, Done(call=DONE))
    it.store("p-9", "Plain", 3, it.now_ms)
    it.store("p-9", "Plain", 4, it.now_ms)


def _comes_twice_over_a_clean_stop(it: Story) -> None:
    it.pass_ms(100 * S)
    it.send("p-9", "Plain", not_before_ms=it.now_ms + S)
    it.tell(Broker(state="stopping"))
    it.tell(Broker(state="ready"))
    it.pass_ms(S)
    for offset in (3, 4):
        it.handle("workers", "p-9", "Plain", offset, Done(call=DONE))
        it.store("p-9", "Plain", offset, it.now_ms)


def _is_dead_twice(it: Story) -> None:
    """What a member sent there by itself is told to have come as often as it may."""
    it.pass_ms(100 * S)
    it.send("p-9", "Plain", 3)
    it.handle("workers", "p-9", "Plain", 3, Threw(call=DONE, level=TO_DEAD_LETTERS))
    it.store("p-9", "Plain", 3, it.now_ms)
    for offset in (1, 2):
        it.store("p-9", "%DLQ%workers", offset, it.now_ms, times=2, first_topic="Plain")


def _is_kept_though_it_was_sent_back(it: Story) -> None:
    it.again(it.one(Got, id="p-2", times=0), 30, call=77, times=1)
    it.at(it.one(Got, call=77).ms + 1, Done(call=77), "workers-0.0")


BROKEN: dict[str, list[Change]] = {
    "ended": [
        _ends_by_itself,
        lambda it: it.drop(Ended),
        lambda it: setattr(it.one(Ended), "drained", False),
        lambda it: setattr(it.one(Ended), "damage", ["a queue"]),
        lambda it: it.tell(Broker(state="ended")),
    ],
    "sound": [
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
        lambda it: setattr(it.one(Group, group="choosy"), "topics", {"Plain": Wish(above=6)}),
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
        lambda it: it.tell(Decided(id="t-1", state="ROLLBACK", by="checker")),
    ],
    "forward": [_goes_back, _goes_back_too_far],
    "explained": [
        _comes_twice,
        _lies_twice,
        _comes_twice_over_a_clean_stop,
        _is_dead_twice,
        _is_kept_though_it_was_sent_back,
    ],
}


@pytest.mark.parametrize(
    ("check", "change"), [(check, change) for check, changes in BROKEN.items() for change in changes]
)
def test_what_breaks_a_promise_is_found(check: str, change: Change) -> None:
    """By the check whose promise it is, whatever else it breaks."""
    story = good()
    change(story)
    assert check in {finding.check for finding in report_of(story).findings}


def test_every_check_can_fail() -> None:
    """There is a history for each that it does not accept."""
    assert list(BROKEN) == [check.__name__ for check in CHECKS]


def _trouble(it: Story) -> Iterable[tuple[Event, str]]:
    yield Broker(state="pausing"), "broker"
    yield Process(name="workers-0.0", state="killing", group="workers"), "killed"
    yield Process(name="workers-1.0", state="spawned", group="workers"), "members"
    yield Warned(text="disconnected"), "trouble"


@pytest.mark.parametrize("number", range(4))
def test_a_repeated_delivery_is_put_down_to_what_befell_its_group(number: int) -> None:
    """Each of the causes explains it; of another group it does not."""
    story = good()
    _comes_twice(story)
    event, cause = list(_trouble(story))[number]
    story.at(story.one(Got, id="t-1", call=77).ms - 1, event, "workers-0.0")
    report = report_of(story)
    assert report.findings == []
    assert report.duplicates["workers", cause] == 1


def test_a_crash_may_repeat_what_waited() -> None:
    """Delays and transactions are told of their ends twice then; a clean stop is no such thing."""
    story = good()
    _comes_twice_over_a_clean_stop(story)
    story.one(Broker, state="stopping").state = "killing"
    report = report_of(story)
    assert report.findings == []
    assert report.duplicates["Plain", "crash"] == report.duplicates["workers", "stored"] == 1


def test_each_copy_that_a_crash_made_may_die() -> None:
    """One dead letter for each handler that asked for it."""
    story = good()
    _is_dead_twice(story)
    story.tell(Broker(state="killing"))
    story.tell(Broker(state="ready"))
    story.one(Sending, id="p-9").not_before_ms = story.one(Got, id="p-9").ms
    story.handle("workers", "p-9", "Plain", 4, Threw(call=DONE, level=TO_DEAD_LETTERS))
    story.store("p-9", "Plain", 4, story.now_ms)
    report = report_of(story)
    assert report.findings == []
    assert report.duplicates["%DLQ%workers", "failed"] == report.duplicates["Plain", "crash"] == 1


def test_a_crash_may_take_back_the_last_commits() -> None:
    """What was committed within the interval of saves, and no more."""
    story = good()
    crash = story.one(Broker, state="killing")
    story.at(crash.ms - 10, Offsets(table={"Keyed@ordered": {0: 2}}))
    story.at(crash.ms + 3, Offsets(table={"Keyed@ordered": {0: 1}}))
    story.at(crash.ms + 3, Broker(state="killing"))
    story.at(crash.ms + 60 * S, Offsets(table={"Keyed@ordered": {0: 1}}))
    story.drop(Offsets, table={"Keyed@ordered": {0: 3}})
    assert report_of(story).findings == []


def test_a_journal_holds_what_was_told(tmp_path: Path) -> None:
    """Line by line, in files that are read as one; half a line at the end was never told."""
    first, second = Journal(tmp_path, "a"), Journal(tmp_path, "b")
    first.tell(Sending(id="x", topic="Plain", crc=1))
    second.tell(Offsets(table={"T@g": {0: 5}}))
    first.tell(Sent(id="x", queue_id=0, offset=3))
    first.close()
    second.close()
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'{"what":"sent","id"')
    sending, offsets, sent = read(tmp_path)
    assert isinstance(sending, Sending)
    assert (sending.who, sending.topic) == ("a", "Plain")
    assert isinstance(offsets, Offsets)
    assert offsets.table == {"T@g": {0: 5}}
    assert isinstance(sent, Sent)
    assert sending.at < offsets.at < sent.at
    with pytest.raises(FileExistsError):
        Journal(tmp_path, "a")


def test_a_body_says_whose_it_is() -> None:
    """Whatever fills it."""
    assert id_of(body_of("producer-0.1-17", b"\x00 \xff")) == "producer-0.1-17"
    assert crc_of(b"a") != crc_of(b"b")
