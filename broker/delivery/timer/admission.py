"""Timer messages on their way into the log: when they are due, and whether that can be promised.

    TIMER_DELAY_SEC, TIMER_DELAY_MS     so long from now          the first one that is there counts
    TIMER_DELIVER_MS                    at that time, Unix ms

What is due by now goes straight to its topic. Else the time is rounded down to a multiple of the precision that lies
before it, which is the slot in which the message waits: a slot is delivered when its whole step is over, so nothing
comes early, and nothing more than one step late. The message is stored in the timer topic, with TIMER_OUT_MS,
REAL_TOPIC and REAL_QID; its properties have to leave room for those that its delivery adds.

Refused, with a remark of RocketMQ's: what is no time, or too far ahead; a deletion whose time is over; everything while
timers are turned off; and what comes due together with too many others, each the likelier the more there are. With one
of ours: everything that would wait, while the files of timers cannot be written.

Source: docs/formats.md, "Timer messages".
"""

import random
import re
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.deferral import TIMER_REQUESTS, Wish, redirect, send_on
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode, SystemTopic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.timers import DELETES, OUT_MS

ROOM_BYTES: Final = 128
"""Left of a message's properties for those that rolling and delivery add."""
MAX_PROPERTIES_BYTES: Final = 32_767

ILLEGAL: Final = (
    "timer message illegal, the delay time should not be bigger than the max delay {max_ms}ms; or if set del msg, the "
    "delay time should be bigger than the current time"
)
CONGESTED: Final = (
    "timer message is under flow control, max num limit is {most} or the current value is greater than {some} and less "
    "than {most}, trigger random flow control"
)
UNAVAILABLE: Final = "timer messages are not taken for now, others are: {problem}"
DISABLED: Final = "accurate timer message is not enabled, timerWheelEnable is false"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_UNIT_MS: Final = {"TIMER_DELAY_SEC": 1_000, "TIMER_DELAY_MS": 1}


class TimerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What may be asked for. Milliseconds; `congested`: messages of a slot above which some are refused."""

    is_enabled: bool = True
    precision_ms: int = 1_000
    max_delay_ms: int = 259_200_000
    congested: int = 2**31 - 1


class TimerEntryStatistics(msgspec.Struct, frozen=True):
    """Totals since the start."""

    accepted: int
    refused: int


class TimerEntry:
    """The `timers` of a Diversion. `count_at`: how many messages wait for a time; `chance`: numbers from 0 to 1;
    `problem`: why nothing may wait at present, "" if it may."""

    def __init__(
        self,
        config: TimerConfig,
        count_at: Callable[[int], int],
        chance: Callable[[], float] = random.random,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        self._config = config
        self._count_at = count_at
        self._chance = chance
        self._problem = problem
        self._accepted = 0
        self._refused = 0
        self.note_request: Callable[[str, float], None] = lambda _topic, _seconds: None
        """Called with the topic of each message that will wait, and for how long."""

    def __repr__(self) -> str:
        return f"<TimerEntry accepted={self._accepted} refused={self._refused}>"

    def statistics(self) -> TimerEntryStatistics:
        """The figures now."""
        return TimerEntryStatistics(self._accepted, self._refused)

    def configure(self, config: TimerConfig) -> None:
        """Accept by another limit from now on; what else `config` says has to be what it was."""
        self._config = config

    def divert(self, append: Append, properties: dict[str, str], now_ms: int) -> PutStatus | None:
        """Rewrite a message that asks for a time. RequestError: it is refused."""
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
        """RequestError: what these properties ask for could never be granted, now or later."""
        if not self._config.is_enabled:
            raise self._refusal(ResponseCode.SYSTEM_ERROR, DISABLED)
        due_ms = deliver_time(properties, now_ms)
        if due_ms is None or due_ms - now_ms > self._config.max_delay_ms:
            raise self._refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL.format(max_ms=self._config.max_delay_ms))

    def grant(self, append: Append, wish: Wish, now_ms: int) -> bool:
        """The same as a `Grant`. RequestError: it is refused."""
        if append.topic == SystemTopic.TIMER:
            return False
        unit_ms = _UNIT_MS.get(wish.name)
        due_ms = wish.value if unit_ms is None else now_ms + wish.value * unit_ms
        out_ms = self._slot_of(due_ms, now_ms, is_deletion=False)
        if out_ms is not None:
            append.properties += b"TIMER_OUT_MS\x01%d\x02" % out_ms
            topic = append.topic
            send_on(append, SystemTopic.TIMER, 0)
            append.status = self._accept(append, topic, due_ms - now_ms) or append.status
        return True

    def _slot_of(self, due_ms: int | None, now_ms: int, *, is_deletion: bool) -> int | None:
        """In which slot a message waits that is due then; None: it need not wait. RequestError: it is refused."""
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
        if len(append.properties) > MAX_PROPERTIES_BYTES - ROOM_BYTES:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        self._accepted += 1
        self.note_request(topic, delay_ms / 1000)
        return None

    def _is_congested(self, out_ms: int) -> bool:
        limit = self._config.congested
        excess = self._count_at(out_ms) - limit
        return excess > 0 and excess >= self._chance() * limit

    def _refusal(self, code: ResponseCode, remark: str) -> RequestError:
        self._refused += 1
        return RequestError(code, remark)


def deliver_time(properties: dict[str, str], now_ms: int) -> int | None:
    """When a message with these properties is to be delivered, Unix ms; None: that is no number."""
    name = next(name for name in TIMER_REQUESTS if properties.get(name))
    text = properties[name]
    if not _NUMBER.fullmatch(text):
        return None
    unit_ms = _UNIT_MS.get(name)
    return int(text) if unit_ms is None else now_ms + int(text) * unit_ms
