"""Which messages do not go straight to their topic, and what becomes of them."""

from typing import Any

import pytest

from skylarkmq.broker.delivery.deferral import Deferral, needs_deferral
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import decode_properties, encode_properties
from tests.harness.stores import message

NOW = 1_700_000_000_000
DELAYS = (1_000, 5_000, 10_000)


def made(properties: dict[str, str], **fields: Any) -> tuple[Append, dict[str, str]]:
    return message(properties=encode_properties(properties).encode(), queue_id=2, **fields), dict(properties)


def test_a_level_goes_to_its_queue_and_remembers_where_it_belongs() -> None:
    """The schedule topic, the queue of its level, REAL_TOPIC and REAL_QID."""
    append, properties = made({"KEYS": "k", "WAIT": "true", "DELAY": "2", "CLUSTER": "C"})
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert (append.topic, append.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    expected = {"KEYS": "k", "WAIT": "true", "DELAY": "2", "CLUSTER": "C", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert properties == decode_properties(append.properties.decode()) == expected


@pytest.mark.parametrize("asked", ["3", "4", "30", "+3", "0000000003"])
def test_a_level_above_the_last_is_the_last(asked: str) -> None:
    """And it is stored as a plain number."""
    append, properties = made({"DELAY": asked})
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert (append.queue_id, properties["DELAY"]) == (2, "3")


@pytest.mark.parametrize("asked", ["0", "-1", "-0", "+0"])
def test_level_0_and_below_is_no_delay(asked: str) -> None:
    """The message is not touched."""
    append, properties = made({"DELAY": asked})
    before = append.properties
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert (append.topic, append.queue_id, append.properties) == ("T", 2, before)


@pytest.mark.parametrize("asked", ["x", "1.5", "1 ", "٣", "99999999999"])
def test_what_is_no_number_is_refused(asked: str) -> None:
    """Rather than delivered at once."""
    append, properties = made({"DELAY": asked})
    assert Deferral(DELAYS).defer(append, properties, NOW) is PutStatus.MESSAGE_ILLEGAL
    assert append.topic == "T"


def test_without_levels_nothing_can_be_delayed() -> None:
    """An empty messageDelayLevel."""
    assert Deferral(()).defer(*made({"DELAY": "1"}), NOW) is PutStatus.MESSAGE_ILLEGAL


def test_a_level_wins_over_timers() -> None:
    """What asked for a timer goes, so that nobody looks at it again."""
    append, properties = made({"DELAY": "1", "TIMER_DELAY_SEC": "9", "TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "9"})
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert properties == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2"}


@pytest.mark.parametrize("kind", [4, 12])
def test_prepared_and_rolled_back_messages_are_left_alone(kind: int) -> None:
    """They have no unit, so nothing could deliver them; a committed one is delayed."""
    append, properties = made({"DELAY": "1"}, sys_flag=kind)
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert append.topic == "T"
    append, properties = made({"DELAY": "1", "TRAN_MSG": "true"}, sys_flag=8)
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert append.topic == "SCHEDULE_TOPIC_XXXX"


class Elsewhere:
    """Somebody who takes messages."""

    def __init__(self, answer: PutStatus | None = None) -> None:
        self.taken: list[tuple[str, int]] = []
        self._answer = answer

    def __call__(self, append: Append, _properties: dict[str, str], now_ms: int) -> PutStatus | None:
        self.taken.append((append.topic, now_ms))
        return self._answer


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_timers_are_handed_on(name: str) -> None:
    """Whoever serves them decides."""
    timers = Elsewhere(PutStatus.MESSAGE_ILLEGAL)
    assert Deferral(DELAYS, timers).defer(*made({name: "9"}), NOW) is PutStatus.MESSAGE_ILLEGAL
    assert timers.taken == [("T", NOW)]
    assert Deferral(DELAYS, timers).defer(*made({name: "0"}), NOW) is None
    assert Deferral(DELAYS, timers).defer(*made({name: "9", "TIMER_OUT_MS": "1"}), NOW) is None
    assert len(timers.taken) == 1


def test_half_messages_are_handed_on_before_anything_else() -> None:
    """Whatever delay they want applies once they are committed."""
    half = Elsewhere()
    for kind in (0, 4):
        append, properties = made({"TRAN_MSG": "True", "DELAY": "1"}, sys_flag=kind)
        assert Deferral(DELAYS, half=half).defer(append, properties, NOW) is None
    assert half.taken == [("T", NOW)] * 2
    assert Deferral(DELAYS, half=half).defer(*made({"TRAN_MSG": "false"}), NOW) is None
    assert len(half.taken) == 2


def test_a_half_message_that_is_tried_again_is_an_ordinary_one() -> None:
    """A consumer sent it back: it was committed long ago."""
    append, properties = made({"TRAN_MSG": "true", "DELAY": "1"}, reconsume_times=1)
    assert Deferral(DELAYS, half=Elsewhere()).defer(append, properties, NOW) is None
    assert append.topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_MS": "9"}, {"TRAN_MSG": "true", "PGROUP": "g"}])
def test_what_is_not_served_is_refused_rather_than_delivered(properties: dict[str, str]) -> None:
    """The remark names the property."""
    with pytest.raises(RequestError) as refusal:
        Deferral(DELAYS).defer(*made(properties), NOW)
    assert refusal.value.code is ResponseCode.MESSAGE_ILLEGAL
    assert next(iter(properties)) in refusal.value.remark


@pytest.mark.parametrize(
    ("properties", "needs"),
    [
        ({}, False),
        ({"DELAY": "0", "TRAN_MSG": "false", "TIMER_DELAY_SEC": "0"}, False),
        ({"DELAY": "1"}, True),
        ({"DELAY": "-1"}, True),
        ({"DELAY": "x"}, True),
        ({"TRAN_MSG": "TRUE"}, True),
        ({"TIMER_DELIVER_MS": "1"}, True),
        ({"TIMER_DELIVER_MS": "1", "TIMER_OUT_MS": "1"}, False),
    ],
)
def test_most_messages_need_no_look(properties: dict[str, str], *, needs: bool) -> None:
    """Only what may be deferred is offered."""
    assert needs_deferral(properties) is needs


def test_what_was_wished_for_is_counted_by_topic() -> None:
    """For the histogram of delays; a deleted topic's figures go with it."""
    deferral = Deferral(DELAYS)
    for level in ("1", "3", "3"):
        deferral.defer(*made({"DELAY": level}), NOW)
    assert (deferral.requested["T"].count, deferral.requested["T"].total) == (3, 21)
    assert deferral.statistics().delayed == 3
    assert repr(deferral) == "<Deferral levels=3 delayed=3>"
    deferral.forget_topic("T")
    assert deferral.requested == {}
