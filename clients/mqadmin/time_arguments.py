"""Times in options, as RocketMQ's tool takes them: Unix milliseconds, or `2024-05-01#13:00:00:000` in local time."""

import re
from datetime import datetime
from typing import Final

from skylarkmq.clients.mqadmin.failures import usage_error

_DATE: Final = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})#(\d{1,2}):(\d{1,2}):(\d{1,2}):(\d{1,3})", re.ASCII)
_MILLISECONDS: Final = re.compile(r"-?\d{1,18}", re.ASCII)


def time_argument(text: str) -> int:
    """Return a time in ms since 1970. CommandFailed for other forms."""
    given = text.strip()
    if _MILLISECONDS.fullmatch(given):
        return int(given)
    found = _DATE.fullmatch(given)
    if found is not None:
        *parts, milliseconds = map(int, found.groups())
        try:
            return int(datetime(*parts).astimezone().timestamp()) * 1000 + milliseconds  # type: ignore[arg-type]
        except (ValueError, OverflowError, OSError):
            pass  # no such day or hour
    raise usage_error(f"a time is milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS, not {given!r}.")
