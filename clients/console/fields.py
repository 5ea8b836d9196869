"""Values of forms and addresses. InvalidArgument for a value that is not allowed, with its label and the next step."""

from collections.abc import Callable
from datetime import UTC, datetime

from starlette.requests import Request

from skylarkmq.clients.console.rendering import form_of
from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.protocol.decimals import decimal
from skylarkmq.protocol.errors import RequestError


def required(request: Request, name: str, label: str) -> str:
    """Return a field of the form. InvalidArgument if it is empty."""
    value = form_of(request).get(name, "").strip()
    if not value:
        raise InvalidArgument(f"{label} is empty: fill it in.")
    return value


def is_checked(request: Request, name: str) -> bool:
    """Return whether a checkbox of the form is checked."""
    return form_of(request).get(name) == "yes"


def checked_name(request: Request, kind: str, check: Callable[[str], None]) -> str:
    """Return the name in the field `kind` ("topic" or "group"). InvalidArgument if `check` raises RequestError."""
    name = required(request, kind, "The name")
    try:
        check(name)
    except RequestError as error:
        raise InvalidArgument(f"{name!r} is not a valid {kind} name: {error.remark}") from error
    return name


def whole(text: str | None, label: str, low: int, high: int) -> int:
    """Return a number. InvalidArgument if the text is not a whole number from `low` to `high`."""
    text = (text or "").strip()
    number = decimal(text, low, high)
    if number is None:
        raise InvalidArgument(f"{label} is {text[:50]!r}: use a whole number from {low:,} to {high:,}.")
    return number


def time_ms(text: str) -> int:
    """Return the Unix ms of a time in UTC, as browsers send it. InvalidArgument if it is not a time since 1970."""
    try:
        moment = datetime.fromisoformat(text)
        ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{text[:50]!r} is not a time: use 2024-05-01T12:00:00, in UTC.") from None
    if ms < 0:  # -1 stands for the end of a queue
        raise InvalidArgument(f"{text[:50]!r} is before 1970: use a later time.")
    return ms


def optional_time(text: str | None) -> int | None:
    """Return the Unix ms of a time; None for an empty text."""
    return time_ms(text) if text else None
