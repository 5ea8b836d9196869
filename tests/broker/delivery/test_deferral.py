"""Which messages do not go straight to their topic, and how they are rewritten."""

from typing import Any

import pytest

from skylarkmq.broker.delivery.deferral import Deferral, RequestedDelays, needs_deferral
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import decode_properties, encode_properties
from tests.harness.stores import message

NOW = 1_700_000_000_000
DELAYS = (1_000, 5_000, 10_000)


def made(properties: dict[str, str], **fields: Any) -> tuple[Append, dict[str, str]]:
    return message(properties=encode_properties(properties).encode(), queue_id=2, **fields), dict(properties)


def test_a_level_moves_the_message_and_stores_its_destination() -> None:
    """The schedule topic, the queue of its level, REAL_TOPIC and REAL_QID."""
    append, properties = made({"KEYS": "k", "WAIT": "true", "DELAY": "2", "CLUSTER": "C"})
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert (append.topic, append.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    expected = {"KEYS": "k", "WAIT": "true", "DELAY": "2", "CLUSTER": "C", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert properties == decode_properties(append.properties.decode()) == expected


@pytest.mark.parametrize("asked", ["3", "4", "30", "+3", "0000000003"])
def test_a_level_above_the_last_counts_as_the_last(asked: str) -> None:
    """It is stored as a plain number."""
    append, properties = made({"DELAY": asked})
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert (append.queue_id, properties["DELAY"]) == (2, "3")


@pytest.mark.parametrize("asked", ["0", "-1", "-0", "+0"])
def test_level_0_and_below_do_not_delay(asked: str) -> None:
    """The message is unchanged."""
    append, properties = made({"DELAY": asked})
    before = append.properties
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert (append.topic, append.queue_id, append.properties) == ("T", 2, before)


@pytest.mark.parametrize("asked", ["x", "1.5", "1 ", "٣", "99999999999"])
def test_a_level_that_is_not_a_number_is_rejected(asked: str) -> None:
    """It must not be delivered at once."""
    append, properties = made({"DELAY": asked})
    assert Deferral(DELAYS).defer(append, properties, NOW) is PutStatus.MESSAGE_ILLEGAL
    assert append.topic == "T"


def test_without_levels_nothing_can_be_delayed() -> None:
    """With an empty messageDelayLevel."""
    assert Deferral(()).defer(*made({"DELAY": "1"}), NOW) is PutStatus.MESSAGE_ILLEGAL


def test_a_level_takes_precedence_over_timers() -> None:
    """The timer request is removed, so that it has no effect later."""
    append, properties = made({"DELAY": "1", "TIMER_DELAY_SEC": "9", "TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "9"})
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert properties == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2"}


@pytest.mark.parametrize("kind", [4, 12])
def test_prepared_and_rolled_back_messages_are_not_deferred(kind: int) -> None:
    """They have no queue unit and could not be delivered; a committed message is delayed."""
    append, properties = made({"DELAY": "1"}, sys_flag=kind)
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert append.topic == "T"
    append, properties = made({"DELAY": "1", "TRAN_MSG": "true"}, sys_flag=8)
    assert Deferral(DELAYS).defer(append, properties, NOW) is None
    assert append.topic == "SCHEDULE_TOPIC_XXXX"


class Handler:
    """A Defer that records the messages it gets."""

    def __init__(self, answer: PutStatus | None = None) -> None:
        self.taken: list[tuple[str, int]] = []
        self._answer = answer

    def __call__(self, append: Append, _properties: dict[str, str], now_ms: int) -> PutStatus | None:
        self.taken.append((append.topic, now_ms))
        return self._answer


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_timer_messages_are_passed_to_the_timers(name: str) -> None:
    """The timers decide."""
    timers = Handler(PutStatus.MESSAGE_ILLEGAL)
    assert Deferral(DELAYS, timers).defer(*made({name: "9"}), NOW) is PutStatus.MESSAGE_ILLEGAL
    assert timers.taken == [("T", NOW)]
    assert Deferral(DELAYS, timers).defer(*made({name: "0"}), NOW) is None
    assert Deferral(DELAYS, timers).defer(*made({name: "9", "TIMER_OUT_MS": "1"}), NOW) is None
    assert len(timers.taken) == 1


def test_half_messages_are_passed_to_transactions_first() -> None:
    """A requested delay takes effect at the commit."""
    half = Handler()
    for kind in (0, 4):
        append, properties = made({"TRAN_MSG": "True", "DELAY": "1"}, sys_flag=kind)
        assert Deferral(DELAYS, half=half).defer(append, properties, NOW) is None
    assert half.taken == [("T", NOW)] * 2
    assert Deferral(DELAYS, half=half).defer(*made({"TRAN_MSG": "false"}), NOW) is None
    assert len(half.taken) == 2


def test_a_redelivered_half_message_is_an_ordinary_one() -> None:
    """A consumer negatively acknowledged it, so it was committed long ago."""
    append, properties = made({"TRAN_MSG": "true", "DELAY": "1"}, reconsume_times=1)
    assert Deferral(DELAYS, half=Handler()).defer(append, properties, NOW) is None
    assert append.topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_MS": "9"}, {"TRAN_MSG": "true", "PGROUP": "g"}])
def test_unserved_messages_are_rejected(properties: dict[str, str]) -> None:
    """The remark contains the property."""
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
def test_which_properties_need_a_deferral(properties: dict[str, str], *, needs: bool) -> None:
    """All other messages skip the deferral."""
    assert needs_deferral(properties) is needs


def test_requested_delays_are_counted_by_topic() -> None:
    """For the histogram of delays; the figures of a deleted topic are removed."""
    requested = RequestedDelays()
    deferral = Deferral(DELAYS, requested=requested)
    for level in ("1", "3", "3"):
        deferral.defer(*made({"DELAY": level}), NOW)
    assert (requested.by_topic["T"].count, requested.by_topic["T"].total) == (3, 21)
    assert deferral.statistics().delayed == 3
    assert repr(deferral) == "<Deferral levels=3 delayed=3>"
    assert repr(requested) == "<RequestedDelays topics=1>"
    requested.forget_topic("T")
    assert requested.by_topic == {}
