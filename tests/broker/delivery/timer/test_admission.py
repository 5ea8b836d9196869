"""Which times timer messages may request, and how they are rewritten."""

import pytest

from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.delivery.timer.admission import (
    CONGESTED,
    DISABLED,
    ILLEGAL,
    MAX_PROPERTIES_BYTES,
    TimerAdmission,
    TimerConfig,
)
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.codes import ResponseCode, SystemTopic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.timers import DELETES
from tests.harness.stores import message

NOW = 1_700_000_000_400
DAY_MS = 86_400_000


def out_of(properties: dict[str, str], **config: int | bool) -> int | None:
    """Return the slot of such a message, in ms after the start of this second; None if it does not wait."""
    append = message(b"one", "T", 3)
    entry = TimerAdmission(TimerConfig(**config), lambda _out_ms: 0)  # type: ignore[arg-type] # fields of that struct
    assert entry.defer(append, properties, NOW) is None
    if append.topic == "T":
        return None
    stored = decode_properties(append.properties.decode())
    assert (append.topic, append.queue_id) == (SystemTopic.TIMER, 0)
    assert (stored["REAL_TOPIC"], stored["REAL_QID"]) == ("T", "3")
    return int(stored["TIMER_OUT_MS"]) - NOW // 1000 * 1000


@pytest.mark.parametrize(
    ("properties", "slot"),
    [
        ({"TIMER_DELAY_SEC": "5"}, 5_000),
        ({"TIMER_DELAY_MS": "5000"}, 5_000),
        ({"TIMER_DELAY_MS": "600"}, 0),
        ({"TIMER_DELAY_MS": "601"}, 1_000),
        ({"TIMER_DELAY_MS": "1"}, 0),
        ({"TIMER_DELIVER_MS": str(NOW - 400 + 3_000)}, 2_000),
        ({"TIMER_DELIVER_MS": str(NOW - 400 + 3_001)}, 3_000),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "9000", "TIMER_DELIVER_MS": "5"}, 1_000),
        ({"TIMER_DELAY_SEC": str(3 * 86_400)}, 3 * DAY_MS),
        ({"TIMER_DELIVER_MS": str(NOW)}, None),
        ({"TIMER_DELAY_SEC": "-1"}, None),
    ],
)
def test_a_time_is_rounded_to_the_slot_before_it(properties: dict[str, str], slot: int | None) -> None:
    """Its step ends at that time or later; the first property counts; a message that is due is not deferred."""
    assert out_of(properties) == slot


def test_a_precision_of_100_ms() -> None:
    """Slots are 100 ms apart."""
    assert out_of({"TIMER_DELAY_MS": "600"}, precision_ms=100) == 900
    assert out_of({"TIMER_DELAY_MS": "601"}, precision_ms=100) == 1_000


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_SEC": str(3 * 86_400 + 1)},
        {"TIMER_DELIVER_MS": "9" * 20},
        {"TIMER_DELIVER_MS": str(NOW), DELETES: "T+k"},
    ],
)
def test_invalid_times_are_rejected(properties: dict[str, str]) -> None:
    """Not a number, too far ahead, a deletion of a past time; the message is unchanged."""
    append = message(b"one")
    entry = TimerAdmission(TimerConfig(), lambda _out_ms: 0)
    with pytest.raises(RequestError) as refused:
        entry.defer(append, properties, NOW)
    assert refused.value.code is ResponseCode.MESSAGE_ILLEGAL
    assert refused.value.remark == ILLEGAL.format(max_ms=3 * DAY_MS)
    assert (append.topic, entry.statistics().refused) == ("T", 1)


def test_a_crowded_slot_rejects_with_growing_probability() -> None:
    """None up to its limit, all from twice the limit on, at random in between."""
    waiting = 0
    entry = TimerAdmission(TimerConfig(congested=100), lambda _out_ms: waiting, lambda: 0.5)
    verdicts = {}
    for waiting in (0, 100, 101, 149, 150, 199, 200, 1_000):
        try:
            entry.defer(message(b"one"), {"TIMER_DELAY_SEC": "5"}, NOW)
            verdicts[waiting] = ""
        except RequestError as refusal:
            verdicts[waiting] = refusal.remark or ""
    remark = CONGESTED.format(some=100, most=200)
    assert verdicts == dict.fromkeys((0, 100, 101, 149), "") | dict.fromkeys((150, 199, 200, 1_000), remark)


def test_without_timers_nothing_is_accepted() -> None:
    """With timerWheelEnable=false."""
    entry = TimerAdmission(TimerConfig(is_enabled=False), lambda _out_ms: 0)
    with pytest.raises(RequestError, match="timerWheelEnable is false") as refused:
        entry.defer(message(b"one"), {"TIMER_DELAY_SEC": "5"}, NOW)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_ERROR, DISABLED)


def test_properties_must_leave_space_for_those_of_the_delivery() -> None:
    """Otherwise a message could be stored and never delivered."""
    entry = TimerAdmission(TimerConfig(), lambda _out_ms: 0)
    properties = {"TIMER_DELAY_SEC": "5", "x": "y" * (MAX_PROPERTIES_BYTES - 150)}
    assert entry.defer(message(b"one"), properties, NOW) is PutStatus.PROPERTIES_SIZE_EXCEEDED


def test_messages_of_the_timer_topic_are_not_deferred() -> None:
    """It would pass through the topic forever."""
    append = message(b"one", SystemTopic.TIMER)
    assert TimerAdmission(TimerConfig(), lambda _out_ms: 0).defer(append, {"TIMER_DELAY_SEC": "5"}, NOW) is None
    assert append.properties == b""


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_SEC": "x"}, {"TIMER_DELIVER_MS": str(NOW + 4 * DAY_MS)}])
def test_half_messages_with_invalid_times_are_rejected(properties: dict[str, str]) -> None:
    """The half message itself is rejected, not its commit; a time that is over is valid."""
    entry = TimerAdmission(TimerConfig(), lambda _out_ms: 0)
    deferral = Deferral((1_000,), entry.defer, lambda *_: None, check_timer=entry.check)
    half = {"TRAN_MSG": "true", "UNIQ_KEY": "K"}
    with pytest.raises(RequestError, match="timer message illegal"):
        deferral.defer(message(), half | properties, NOW)
    for granted in ({"TIMER_DELIVER_MS": str(NOW - 5)}, properties | {"DELAY": "1"}, {"TIMER_DELAY_SEC": "5"}):
        assert deferral.defer(message(), half | granted, NOW) is None
    assert deferral.defer(message(), half | {"DELAY": "x"}, NOW) is PutStatus.MESSAGE_ILLEGAL
