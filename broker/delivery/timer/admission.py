"""Admission of timer messages: when a message is due, and whether the broker can accept it.

    TIMER_DELAY_SEC, TIMER_DELAY_MS     a delay from now          the first of the three that is present counts
    TIMER_DELIVER_MS                    a time, Unix ms

A message that is due already goes straight to its topic. Otherwise the due time is rounded down to the preceding
multiple of the precision, which is the slot of the message. A slot is delivered when its whole step is over, so no
message is early, and none is more than one step late. The message is stored in the timer topic, with TIMER_OUT_MS,
REAL_TOPIC and REAL_QID. Its properties must leave space for those that its delivery adds.

Rejected with RocketMQ's remark: a value that is not a time or is too far ahead; a deletion whose time is over; every
message while timers are turned off; and messages of a slot with too many others, with a probability that grows with
their number. Rejected with a remark of our own: every message that would wait, while the timer files cannot be written.

Source: docs/reference/wire.md, "Timer messages".
"""

import random
import re
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.deferral import TIMER_REQUESTS, DeferralRequest, redirect, redirect_encoded
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode, SystemTopic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.timers import DELETES, OUT_MS

RESERVED_BYTES: Final = 128
"""Space in the properties of a message for those that rolling and delivery add."""
MAX_PROPERTIES_BYTES: Final = 32_767

ILLEGAL: Final = (
    "timer message illegal, the delay time should not be bigger than the max delay {max_ms}ms; or if set del msg, the "
    "delay time should be bigger than the current time"
)
CONGESTED: Final = (
    "timer message is under flow control, max num limit is {most} or the current value is greater than {some} and less "
    "than {most}, trigger random flow control"
)
UNAVAILABLE: Final = "timer messages are not accepted at present, others are: {problem}"
DISABLED: Final = "accurate timer message is not enabled, timerWheelEnable is false"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_UNIT_MS: Final = {"TIMER_DELAY_SEC": 1_000, "TIMER_DELAY_MS": 1}


class TimerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits, in ms. `congested`: number of messages in a slot above which some are rejected."""

    is_enabled: bool = True
    precision_ms: int = 1_000
    max_delay_ms: int = 259_200_000
    congested: int = 2**31 - 1


class TimerAdmissionStatistics(msgspec.Struct, frozen=True):
    """Totals since the start."""

    accepted: int
    refused: int


class TimerAdmission:
    """The `timers` of a Deferral.

    `count_at` returns the number of messages in a slot; `chance` returns numbers from 0 to 1; `problem` returns why no
    message may wait at present, "" if messages may. `note_request` is called with the topic of each accepted message
    and its delay in seconds.
    """

    def __init__(
        self,
        config: TimerConfig,
        count_at: Callable[[int], int],
        chance: Callable[[], float] = random.random,
        problem: Callable[[], str] = lambda: "",
        note_request: Callable[[str, float], None] = lambda _topic, _seconds: None,
    ) -> None:
        self._config = config
        self._count_at = count_at
        self._chance = chance
        self._problem = problem
        self._accepted = 0
        self._refused = 0
        self._note_request = note_request

    def __repr__(self) -> str:
        return f"<TimerAdmission accepted={self._accepted} refused={self._refused}>"

    def statistics(self) -> TimerAdmissionStatistics:
        """Return the current figures."""
        return TimerAdmissionStatistics(self._accepted, self._refused)

    def configure(self, config: TimerConfig) -> None:
        """Apply another `congested` limit from now on; all other values of `config` must be unchanged."""
        self._config = config

    def defer(self, append: Append, properties: dict[str, str], now_ms: int) -> PutStatus | None:
        """Rewrite a message that requests a time, as a `Defer`. Raises RequestError if it is rejected."""
        if append.topic == SystemTopic.TIMER:
            return None
        due_ms = deliver_time(properties, now_ms)
        out_ms = self._slot_of(due_ms, now_ms, is_deletion=DELETES in properties)
        if due_ms is None or out_ms is None:
            return None
        properties[OUT_MS] = str(out_ms)
        topic = append.topic
        redirect(append, properties, SystemTopic.TIMER, 0)
        return self._accept(append, topic, due_ms - now_ms)

    def check(self, properties: dict[str, str], now_ms: int) -> None:
        """Raise RequestError if the time that these properties request is invalid now and later."""
        if not self._config.is_enabled:
            raise self._refusal(ResponseCode.SYSTEM_ERROR, DISABLED)
        due_ms = deliver_time(properties, now_ms)
        if due_ms is None or due_ms - now_ms > self._config.max_delay_ms:
            raise self._refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL.format(max_ms=self._config.max_delay_ms))

    def defer_fast(self, append: Append, request: DeferralRequest, now_ms: int) -> bool:
        """Rewrite a message as a `FastDefer`. Raises RequestError if it is rejected."""
        if append.topic == SystemTopic.TIMER:
            return False
        unit_ms = _UNIT_MS.get(request.name)
        due_ms = request.value if unit_ms is None else now_ms + request.value * unit_ms
        out_ms = self._slot_of(due_ms, now_ms, is_deletion=False)
        if out_ms is not None:
            append.properties += b"TIMER_OUT_MS\x01%d\x02" % out_ms
            topic = append.topic
            redirect_encoded(append, SystemTopic.TIMER, 0)
            append.status = self._accept(append, topic, due_ms - now_ms) or append.status
        return True

    def _slot_of(self, due_ms: int | None, now_ms: int, *, is_deletion: bool) -> int | None:
        """Return the slot of a message that is due at `due_ms`; None if it need not wait. Raises RequestError."""
        config = self._config
        if not config.is_enabled:
            raise self._refusal(ResponseCode.SYSTEM_ERROR, DISABLED)
        if due_ms is None or due_ms - now_ms > config.max_delay_ms or (due_ms <= now_ms and is_deletion):
            raise self._refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL.format(max_ms=config.max_delay_ms))
        if due_ms <= now_ms:
            return None
        if problem := self._problem():
            raise self._refusal(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE.format(problem=problem))
        out_ms = (due_ms - 1) // config.precision_ms * config.precision_ms
        if self._is_congested(out_ms):
            remark = CONGESTED.format(some=config.congested, most=2 * config.congested)
            raise self._refusal(ResponseCode.SYSTEM_ERROR, remark)
        return out_ms

    def _accept(self, append: Append, topic: str, delay_ms: int) -> PutStatus | None:
        if len(append.properties) > MAX_PROPERTIES_BYTES - RESERVED_BYTES:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        self._accepted += 1
        self._note_request(topic, delay_ms / 1000)
        return None

    def _is_congested(self, out_ms: int) -> bool:
        limit = self._config.congested
        excess = self._count_at(out_ms) - limit
        return excess > 0 and excess >= self._chance() * limit

    def _refusal(self, code: ResponseCode, remark: str) -> RequestError:
        self._refused += 1
        return RequestError(code, remark)


def deliver_time(properties: dict[str, str], now_ms: int) -> int | None:
    """Return when a message with these properties is due, Unix ms; None if the value is not a number."""
    name = next(name for name in TIMER_REQUESTS if properties.get(name))
    text = properties[name]
    if not _NUMBER.fullmatch(text):
        return None
    unit_ms = _UNIT_MS.get(name)
    return int(text) if unit_ms is None else now_ms + int(text) * unit_ms
