"""Checks of the arguments that applications pass in. Each raises InvalidArgument, with the argument's name."""

from datetime import datetime
from typing import Any, TypeVar

from skylarkmq.clients.sdk.base.errors import InvalidArgument, checking_argument
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.decimals import INT64_MAX
from skylarkmq.protocol.message import check_group_name, check_topic_name

S = TypeVar("S")


def check_type(name: str, value: object, *kinds: type) -> None:
    """The value has one of these types."""
    if not isinstance(value, kinds):
        known = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidArgument(f"{name} must be a {known}, not a {type(value).__name__}")


def check_group(group: str) -> None:
    """`group` can be the name of a group."""
    check_type("group", group, str)
    with checking_argument("group"):
        check_group_name(group)


def check_topic(topic: str) -> None:
    """`topic` can be the name of a topic."""
    check_type("topic", topic, str)
    with checking_argument("topic"):
        check_topic_name(topic)


def check_queue(queue: MessageQueue) -> None:
    """`queue` is a MessageQueue."""
    check_type("queue", queue, MessageQueue)


def check_number(name: str, value: Any, least: float) -> None:
    """The value is a number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise InvalidArgument(f"{name} must be a number of at least {least:g}, not {value!r}")


def check_timeout(timeout_s: float | None) -> None:
    """The timeout is None or a positive number of seconds."""
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, 0)
        if not timeout_s:
            raise InvalidArgument("timeout_s must be more than 0; None uses the default")


def check_offset(offset: int) -> None:
    """`offset` can be the offset of a queue."""
    check_type("offset", offset, int)
    if not 0 <= offset <= INT64_MAX:
        raise InvalidArgument(f"offset must be 0 to {INT64_MAX}, not {offset}")


def time_ms(name: str, when: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    check_type(name, when, datetime)
    with checking_argument(name):
        return int(when.timestamp() * 1000)


def settings_of(given: S | None, kind: type[S]) -> S:
    """Return the given settings, or the defaults if none are given."""
    if given is None:
        return kind()
    check_type("settings", given, kind)
    return given


def check_callable(name: str, value: object) -> None:
    """The value can be called."""
    if not callable(value):
        raise InvalidArgument(f"{name} must be a function, not a {type(value).__name__}")
