"""Deferral of messages that do not go straight to their topic: half messages, delayed messages, timer messages.

The properties of a message can request that it becomes visible later, or only once its transaction is decided. Each
part of the broker that puts such a message (sent, negatively acknowledged or committed) has it rewritten here first:

    TRAN_MSG = true             passed to `half`; its other requests take effect at its commit, invalid ones fail now
    DELAY = n > 0               moved to queue n - 1 of SCHEDULE_TOPIC_XXXX; a level above the last one is the last one
    one of TIMER_REQUESTS       passed to `timers`, unless it was a timer message before (TIMER_OUT_MS)
    else                        unchanged

REAL_TOPIC and REAL_QID store the original topic and queue. A delay level takes precedence over timer requests, which
are removed. Prepared and rolled-back messages get no queue unit and could not be delivered, so they are never delayed.
A half message that is redelivered (`reconsumeTimes` and DELAY above 0) counts as an ordinary one.

Without `half` or `timers` this broker does not serve such messages: RequestError is raised before they are stored.

Nearly all such messages have usual properties and one request among these (`DeferralRequest`). Then nothing has to be
decoded: the stored properties are the received ones, followed by those that the deferral adds (`Deferral.defer_fast`).
Source: docs/reference/wire.md, "Delayed messages".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from skylarkmq.broker.base.histogram import Histogram
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

Defer: TypeAlias = Callable[[Append, dict[str, str], int], PutStatus | None]
"""`(append, its properties, Unix ms)`: None if it may be put, rewritten or not; else the status that rejects it."""


class DeferralRequest(NamedTuple):
    """The one property among usual ones that defers a message: DELAY, TRAN_MSG, or one of TIMER_REQUESTS.

    `value` is its number, above 0.
    """

    name: str
    value: int


FastDefer: TypeAlias = Callable[[Append, DeferralRequest, int], bool]
"""`(append, its request, Unix ms)`: as a Defer, for a message whose properties are complete; a rejection sets its
status. False: nothing was changed, and all properties have to be decoded."""


def no_fast_deferral(_append: Append, _request: DeferralRequest, _now_ms: int) -> bool:
    """Return False: a FastDefer that always requires a Defer."""
    return False


class DeferralStatistics(msgspec.Struct, frozen=True):
    """Messages that were deferred by a delay level, since the start."""

    delayed: int


class RequestedDelays:
    """The delays that messages request, by level or by time. `by_topic`: in seconds, by real topic."""

    def __init__(self) -> None:
        self.by_topic: dict[str, Histogram] = {}

    def __repr__(self) -> str:
        return f"<RequestedDelays topics={len(self.by_topic)}>"

    def note(self, topic: str, seconds: float) -> None:
        """Count a message of `topic` that is deferred by `seconds`."""
        requested = self.by_topic.get(topic)
        if requested is None:
            requested = self.by_topic[topic] = Histogram(DELAY_BOUNDS_S)
        requested.note(seconds)

    def forget_topic(self, topic: str) -> None:
        """Remove the figures of a deleted topic."""
        self.by_topic.pop(topic, None)


class Deferral:
    """Rewrites messages that must be deferred.

    `delays_ms`: the delay of each level, level 1 first. `check_timer` raises RequestError for properties that request
    an invalid time: a half message must be rejected when it is sent, not when it is committed. `requested` counts the
    delays by level.
    """

    def __init__(
        self,
        delays_ms: Sequence[int],
        timers: Defer | None = None,
        half: Defer | None = None,
        fast_defers: Mapping[str, FastDefer] = MappingProxyType({}),
        check_timer: Callable[[dict[str, str], int], None] = lambda _properties, _now_ms: None,
        requested: RequestedDelays | None = None,
    ) -> None:
        self._delays_ms = delays_ms
        self._check_timer = check_timer
        self._timers = timers
        self._half = half
        self._fast_defers = {PropertyName.DELAY: self._defer_by_level_fast, **fast_defers}
        self._delayed = 0
        self._note_request = (requested or RequestedDelays()).note

    def __repr__(self) -> str:
        return f"<Deferral levels={len(self._delays_ms)} delayed={self._delayed}>"

    def statistics(self) -> DeferralStatistics:
        """Return the current figures."""
        return DeferralStatistics(self._delayed)

    def defer(self, append: Append, properties: dict[str, str], now_ms: int) -> PutStatus | None:
        """Rewrite a message that is about to be put, as its `properties` request.

        `append` has its real topic and queue; `properties` are all that it is stored with. Either both are changed, or
        none. Raises RequestError if this broker does not serve such messages.
        """
        kind = append.sys_flag & SysFlag.TRANSACTION_MASK
        level = delay_level(properties)
        if is_half(append, properties, level):
            if level is None:
                return PutStatus.MESSAGE_ILLEGAL
            if level <= 0 and timer_request(properties) is not None:
                self._check_timer(properties, now_ms)
            name = PropertyName.TRANSACTION_PREPARED
            return _defer_with(self._half, append, properties, now_ms, "transactions", name)
        if kind not in {0, SysFlag.TRANSACTION_COMMIT}:
            return None
        if level is None:
            return PutStatus.MESSAGE_ILLEGAL
        if level > 0:
            return self._defer_by_level(append, properties, level)
        request = timer_request(properties)
        if request is None:
            return None
        return _defer_with(self._timers, append, properties, now_ms, "timer messages", request)

    def defer_fast(self, append: Append, request: DeferralRequest, now_ms: int) -> bool:
        """Rewrite a message that has usual properties and one request, as a `FastDefer`."""
        defer_fast = self._fast_defers.get(request.name)
        kind = append.sys_flag & SysFlag.TRANSACTION_MASK
        is_half = request.name == PropertyName.TRANSACTION_PREPARED and kind != SysFlag.TRANSACTION_COMMIT
        return defer_fast is not None and (is_half or not kind) and defer_fast(append, request, now_ms)

    def _defer_by_level_fast(self, append: Append, request: DeferralRequest, _now_ms: int) -> bool:
        level = request.value
        if level > len(self._delays_ms):
            return False
        self._delayed += 1
        self._note_request(append.topic, self._delays_ms[level - 1] / 1000)
        redirect_encoded(append, SystemTopic.SCHEDULE, level - 1)
        return True

    def _defer_by_level(self, append: Append, properties: dict[str, str], level: int) -> PutStatus | None:
        level = min(level, len(self._delays_ms))
        if not level:
            return PutStatus.MESSAGE_ILLEGAL
        for name in TIMER_REQUESTS:
            properties.pop(name, None)
        properties[PropertyName.DELAY] = str(level)
        self._delayed += 1
        self._note_request(append.topic, self._delays_ms[level - 1] / 1000)
        redirect(append, properties, SystemTopic.SCHEDULE, level - 1)
        return None


def redirect(append: Append, properties: dict[str, str], topic: str, queue_id: int) -> None:
    """Move a message to another queue; its properties keep the original topic and queue."""
    properties[PropertyName.REAL_TOPIC] = append.topic
    properties[PropertyName.REAL_QUEUE_ID] = str(append.queue_id)
    append.topic = topic
    append.queue_id = queue_id
    append.properties = encode_properties(properties).encode("utf-8", "replace")
    append.keys = None


def redirect_encoded(append: Append, topic: str, queue_id: int) -> None:
    """Do the same without decoding the properties, which must not contain REAL_TOPIC and REAL_QID; its keys stay."""
    append.properties += f"REAL_TOPIC\x01{append.topic}\x02REAL_QID\x01{append.queue_id}\x02".encode()
    append.topic = topic
    append.queue_id = queue_id


def needs_deferral(properties: Mapping[str, str]) -> bool:
    """Return whether a message with these properties must go through `Deferral.defer`."""
    return (
        is_true(properties.get(PropertyName.TRANSACTION_PREPARED))
        or delay_level(properties) != 0
        or timer_request(properties) is not None
    )


def is_half(append: Append, properties: Mapping[str, str], level: int | None) -> bool:
    """Return whether the message belongs to a transaction that is not decided yet."""
    if append.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
        return False
    is_marked = is_true(properties.get(PropertyName.TRANSACTION_PREPARED))
    return is_marked and not (append.reconsume_times > 0 and (level or 0) > 0)


def delay_level(properties: Mapping[str, str]) -> int | None:
    """Return the delay level of a message, 0 or less for none; None if the property is not a number."""
    text = properties.get(PropertyName.DELAY, "0")
    return int(text) if _LEVEL.fullmatch(text) else None


def timer_request(properties: Mapping[str, str]) -> str | None:
    """Return the property that makes this a timer message; None if it is not a timer message, or was one before."""
    if TIMER_OUT in properties:
        return None
    return next((name for name in TIMER_REQUESTS if properties.get(name, "") not in _NO_TIMER), None)


def _defer_with(
    to: Defer | None, append: Append, properties: dict[str, str], now_ms: int, what: str, name: str
) -> PutStatus | None:
    if to is None:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, NOT_SERVED.format(what=what, name=name))
    return to(append, properties, now_ms)
