"""Times in options. `time_argument`: as RocketMQ's tool takes them, Unix milliseconds, or `2024-05-01#13:00:00:000` in
local time. `moment_argument`: also `now`, `15m` (15 minutes ago), and `2024-05-01T13:00` in local time or with a zone.
"""

import re
from datetime import datetime
from typing import Final

from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.sdk.base.clocks import now_ms

_DATE: Final = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})#(\d{1,2}):(\d{1,2}):(\d{1,2}):(\d{1,3})", re.ASCII)
_MILLISECONDS: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_AGO: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_argument(text: str) -> int:
    """Return a time in ms since 1970. CommandFailed for other forms."""
    given = text.strip()
    if given == "now":
        return now_ms()
    ago = _AGO.fullmatch(given)
    if ago is not None:
        return max(now_ms() - int(ago[1]) * _UNIT_MS[ago[2]], 0)
    if "#" in given or _MILLISECONDS.fullmatch(given):
        return time_argument(given)
    try:
        return int(datetime.fromisoformat(given).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        forms = "now, 15m (s, m, h or d ago), 2024-05-01T13:00, or milliseconds since 1970"
        raise usage_error(f"a time must be {forms}, not {given!r}.") from None


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
    raise usage_error(f"a time must be milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS, not {given!r}.")
