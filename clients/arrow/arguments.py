"""Arguments that both scans take. Errors are ValueError with the name of the argument."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from skylarkmq.clients.arrow.schema import DEFAULT_COLUMNS, Columns

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def names_of(argument: str, names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name or several as a sorted tuple, each once."""
    found = tuple(sorted({names} if isinstance(names, str) else set(names)))
    if not found or not all(found):
        raise ValueError(f"{argument} must contain at least one name, and no empty one")
    return found


def columns_of(names: Iterable[str] | None, *, decode: bool) -> Columns:
    """Return the columns with these names; None stands for the default columns."""
    if isinstance(names, str):
        raise ValueError(f"columns must be a list of names, not {names!r}")
    return Columns(DEFAULT_COLUMNS if names is None else tuple(names), decode)


def milliseconds_of(argument: str, time: datetime | int | None) -> int | None:
    """Return a time as ms since 1970, rounded up: the first ms that is not before it."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{argument} must have a time zone: {time}")
        return -((_EPOCH - time) // _MILLISECOND)
    if time is not None and time < 0:
        raise ValueError(f"{argument} must not be negative: {time}")
    return time
