"""Messages that do not go straight to their topic: half messages, delayed ones, timers.

A message that a client made says by its properties that it is to be seen later, or only once its transaction is
decided. Whoever puts such a message, be it sent, sent back or committed, has it rewritten here first:

    TRAN_MSG = true             to `half`; what else it wishes is granted by its commit, the impossible refused now
    DELAY = n > 0               to queue n - 1 of SCHEDULE_TOPIC_XXXX; a level above the last one is the last one
    one of TIMER_REQUESTS       to `timers`, unless it has been one already (TIMER_OUT_MS)
    else                        left as it is

REAL_TOPIC and REAL_QID keep where it belongs. A level wins over timer requests, which go. Prepared and rolled-back
messages get no queue unit, so nothing could deliver them: they are never delayed. A half message that is tried again
(`reconsumeTimes` and DELAY above 0) is an ordinary one.

Without `half` or `timers` this broker does not serve such messages: RequestError, before anything is stored.

Nearly all of them have usual properties and one wish among these (`Wish`). Then nothing has to be taken apart: what is
stored are the properties as they came, and what a diversion adds behind them (`Diversion.grant`).
Source: docs/formats.md, "Delayed messages".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from skylarkmq.broker.histogram import Buckets
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode, SysFlag, SystemTopic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.message import PropertyName, encode_properties

TIMER_REQUESTS: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
TIMER_OUT: Final = "TIMER_OUT_MS"
DELAY_BOUNDS_S: Final = (60, 600, 3_600, 43_200, 86_400, 259_200)
NOT_SERVED: Final = "this version does not deliver {what} (property {name}); the message was not stored"

_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_NO_TIMER: Final = frozenset(("", "0"))

Divert: TypeAlias = Callable[[Append, dict[str, str], int], PutStatus | None]
"""`(append, its properties, Unix ms)`: None when it may be put, perhaps rewritten; else the status that refuses it."""


class Wish(NamedTuple):
    """The one property among usual ones that diverts a message: DELAY, TRAN_MSG, or one of TIMER_REQUESTS.

    `value` is its number, above 0.
    """

    name: str
    value: int


Grant: TypeAlias = Callable[[Append, Wish, int], bool]
"""`(append, its wish, Unix ms)`: as a Divert, of a message whose properties are completed; a refusal is its status.
False: nothing was done, all its properties have to be looked at."""


def never(_append: Append, _wish: Wish, _now_ms: int) -> bool:
    """A Grant that leaves everything to a closer look."""
    return False


class DiversionStatistics(msgspec.Struct, frozen=True):
    """Messages that were rewritten to be delayed by a level, since the start."""

    delayed: int


class Diversion:
    """`delays_ms`: of each level, level 1 first. `check_timer`: raises RequestError for properties that ask for a time
    which could never be granted: nobody wants to hear that of a half message when it is committed."""

    def __init__(
        self,
        delays_ms: Sequence[int],
        timers: Divert | None = None,
        half: Divert | None = None,
        grants: Mapping[str, Grant] = MappingProxyType({}),
        check_timer: Callable[[dict[str, str], int], None] = lambda _properties, _now_ms: None,
    ) -> None:
        self._delays_ms = delays_ms
        self._check_timer = check_timer
        self._timers = timers
        self._half = half
        self._grants = {PropertyName.DELAY: self._grant_delay, **grants}
        self._delayed = 0
        self.requested: dict[str, Buckets] = {}
        """By real topic, for how many seconds messages were to be delayed."""

    def __repr__(self) -> str:
        return f"<Diversion levels={len(self._delays_ms)} delayed={self._delayed}>"

    def statistics(self) -> DiversionStatistics:
        """The figures now."""
        return DiversionStatistics(self._delayed)

    def divert(self, append: Append, properties: dict[str, str], now_ms: int) -> PutStatus | None:
        """Rewrite a message on its way into the log, as its `properties` want it.

        `append` has its real topic and queue, `properties` are all that it is stored with. Both are changed, or none.
        RequestError: this broker does not serve such messages.
        """
        kind = append.sys_flag & SysFlag.TRANSACTION_MASK
        level = delay_level(properties)
        if is_half(append, properties, level):
            if level is None:
                return PutStatus.MESSAGE_ILLEGAL
            if level <= 0 and timer_request(properties) is not None:
                self._check_timer(properties, now_ms)
            return _handed(self._half, append, properties, now_ms, "transactions", PropertyName.TRANSACTION_PREPARED)
        if kind not in {0, SysFlag.TRANSACTION_COMMIT}:
            return None
        if level is None:
            return PutStatus.MESSAGE_ILLEGAL
        if level > 0:
            return self._delay(append, properties, level)
        request = timer_request(properties)
        if request is None:
            return None
        return _handed(self._timers, append, properties, now_ms, "timer messages", request)

    def grant(self, append: Append, wish: Wish, now_ms: int) -> bool:
        """A `Grant`: rewrite a message that has usual properties but for one wish."""
        grant = self._grants.get(wish.name)
        kind = append.sys_flag & SysFlag.TRANSACTION_MASK
        is_half = wish.name == PropertyName.TRANSACTION_PREPARED and kind != SysFlag.TRANSACTION_COMMIT
        return grant is not None and (is_half or not kind) and grant(append, wish, now_ms)

    def _grant_delay(self, append: Append, wish: Wish, _now_ms: int) -> bool:
        level = wish.value
        if level > len(self._delays_ms):
            return False
        self._delayed += 1
        self.note_request(append.topic, self._delays_ms[level - 1] / 1000)
        send_on(append, SystemTopic.SCHEDULE, level - 1)
        return True

    def _delay(self, append: Append, properties: dict[str, str], level: int) -> PutStatus | None:
        level = min(level, len(self._delays_ms))
        if not level:
            return PutStatus.MESSAGE_ILLEGAL
        for name in TIMER_REQUESTS:
            properties.pop(name, None)
        properties[PropertyName.DELAY] = str(level)
        self._delayed += 1
        self.note_request(append.topic, self._delays_ms[level - 1] / 1000)
        redirect(append, properties, SystemTopic.SCHEDULE, level - 1)
        return None

    def note_request(self, topic: str, seconds: float) -> None:
        """Somebody wants a message of `topic` to come so much later."""
        requested = self.requested.get(topic)
        if requested is None:
            requested = self.requested[topic] = Buckets(DELAY_BOUNDS_S)
        requested.note(seconds)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted, and so are its figures."""
        self.requested.pop(topic, None)


def redirect(append: Append, properties: dict[str, str], topic: str, queue_id: int) -> None:
    """Have a message stored in another queue, and keep where it belongs in its properties."""
    properties[PropertyName.REAL_TOPIC] = append.topic
    properties[PropertyName.REAL_QUEUE_ID] = str(append.queue_id)
    append.topic = topic
    append.queue_id = queue_id
    append.properties = encode_properties(properties).encode("utf-8", "replace")
    append.keys = None


def send_on(append: Append, topic: str, queue_id: int) -> None:
    """The same for a message that is found by what it was found by, with properties that say nothing of that yet."""
    append.properties += f"REAL_TOPIC\x01{append.topic}\x02REAL_QID\x01{append.queue_id}\x02".encode()
    append.topic = topic
    append.queue_id = queue_id


def needs_diversion(properties: Mapping[str, str]) -> bool:
    """Whether `divert` has anything to decide about a message of such properties."""
    return (
        is_true(properties.get(PropertyName.TRANSACTION_PREPARED))
        or delay_level(properties) != 0
        or timer_request(properties) is not None
    )


def is_half(append: Append, properties: Mapping[str, str], level: int | None) -> bool:
    """Whether it belongs to a transaction that is not decided yet."""
    if append.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
        return False
    is_marked = is_true(properties.get(PropertyName.TRANSACTION_PREPARED))
    return is_marked and not (append.reconsume_times > 0 and (level or 0) > 0)


def delay_level(properties: Mapping[str, str]) -> int | None:
    """The level that a message asks for, 0 or less for none; None if what it says is no number."""
    text = properties.get(PropertyName.DELAY, "0")
    return int(text) if _LEVEL.fullmatch(text) else None


def timer_request(properties: Mapping[str, str]) -> str | None:
    """The property that makes it a timer message; None if nothing does, or it has been one."""
    if TIMER_OUT in properties:
        return None
    return next((name for name in TIMER_REQUESTS if properties.get(name, "") not in _NO_TIMER), None)


def _handed(
    to: Divert | None, append: Append, properties: dict[str, str], now_ms: int, what: str, name: str
) -> PutStatus | None:
    if to is None:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, NOT_SERVED.format(what=what, name=name))
    return to(append, properties, now_ms)
