"""Text as Java prints it, because scripts read the columns of RocketMQ's tool.

    printf("%-22s  %9.2f%n", name, rate)

`java_format` takes the conversions that the tool uses: `%s %d %f %b %%` and `%n`, with width, precision and the flag
`-`, `0` or `+`. Numbers are rounded half up from their shortest decimal form, as Java does: 0.125 with `%.2f` is 0.13.

Names, remarks and bodies come from other clients, and the output may go to a terminal. Unlike Java, `%s` prints control
characters escaped (ESC is `\\x1b`), so that they cannot move the cursor or add rows. `Lines` may have several lines.
"""

import re
import sys
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

_CONTROL: Final = "\\x00-\\x1f\\x7f-\\x9f"
_DIRECTION: Final = "\\u202a-\\u202e\\u2066-\\u2069"
"""Characters that change the direction of the text after them."""
_NOT_ENCODABLE: Final = "\\ud800-\\udfff"
_UNSAFE: Final = re.compile(f"[{_CONTROL}{_DIRECTION}{_NOT_ENCODABLE}]")
_UNSAFE_IN_LINES: Final = re.compile(rf"(?!\r?\n|\t){_UNSAFE.pattern}")
_CONVERSION: Final = re.compile(r"%([-0+]*)(\d*)(?:\.(\d+))?([sdfbn%])")
_TOPIC_CHARACTERS: Final = 64
_BROKER_CHARACTERS: Final = 32
_BEIJING: Final = timezone(timedelta(hours=8))
_CYCLE_YEARS: Final = 400
_CYCLE_S: Final = 146_097 * 86_400
"""The calendar repeats after so many years, or seconds."""
_OF_DATETIME_S: Final = range(-62_135_510_400, 253_402_214_400)
"""The times that Python's datetime has in each time zone: the years 1 to 9999 without the first and the last day."""


class Lines(str):
    """A text of several lines, such as indented JSON or a body: its tabs and ends of lines are printed as they are."""

    __slots__ = ()


def printf(pattern: str, *values: object) -> None:
    """Write a line, or a part of one, to stdout."""
    sys.stdout.write(java_format(pattern, *values))


def java_format(pattern: str, *values: object) -> str:
    """Return what `String.format(pattern, values)` returns."""
    remaining = iter(values)

    def converted(match: re.Match[str]) -> str:
        flags, width, precision, kind = match.groups()
        if kind == "n":
            return "\n"
        if kind == "%":
            return "%"
        text = _text(next(remaining), kind, precision)
        if "+" in flags and kind != "s" and not text.startswith("-"):
            text = "+" + text
        if "0" in flags:
            return text.zfill(int(width))
        return text.ljust(int(width or 0)) if "-" in flags else text.rjust(int(width or 0))

    return _CONVERSION.sub(converted, pattern)


def java_text(value: object) -> str:
    """Return what `String.valueOf` returns: `true`, `null`, and floating-point numbers as `1.0` and `1.0E7`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """Return what `Double.toString` returns: with an exponent below 0.001 and from 10,000,000 on."""
    if value != value or abs(value) == float("inf"):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f") if "e" in repr(value) else repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def cut_front(name: str, length: int = _TOPIC_CHARACTERS) -> str:
    """Return the front of a topic or group: its first `length` characters."""
    return name[:length]


def cut_broker(name: str) -> str:
    """Return the front of a broker name: its first 32 characters."""
    return cut_front(name, _BROKER_CHARACTERS)


def local_time(timestamp_ms: int) -> str:
    """Return a time as `yyyy-MM-dd HH:mm:ss` in the local time zone.

    Clients set some of the times, to any number of 64 bits. Like Java's, years may have more than four digits.
    """
    seconds = timestamp_ms // 1000
    cycles = 0 if seconds in _OF_DATETIME_S else seconds // _CYCLE_S
    moment = datetime.fromtimestamp(seconds - cycles * _CYCLE_S).astimezone()
    year = moment.year + cycles * _CYCLE_YEARS
    return f"{year if year > 0 else 1 - year:04}{moment:-%m-%d %H:%M:%S}"


def local_time_ms(timestamp_ms: int) -> str:
    """Return a time as `yyyy-MM-dd HH:mm:ss,SSS` in the local time zone."""
    return f"{local_time(timestamp_ms)},{timestamp_ms % 1000:03d}"


def beijing_time(timestamp_ms: int) -> str:
    """Return a time as `yyyy-MM-dd HH:mm:ss` in GMT+8, which clusterRT prints everywhere."""
    return datetime.fromtimestamp(timestamp_ms // 1000, _BEIJING).strftime("%Y-%m-%d %H:%M:%S")


def _text(value: object, kind: str, precision: str | None) -> str:
    if kind == "f":
        return _rounded(value, int(precision or 6))
    unsafe = _UNSAFE_IN_LINES if isinstance(value, Lines) else _UNSAFE
    text = unsafe.sub(lambda match: ascii(match[0])[1:-1], java_text(value))
    return text if precision is None else text[: int(precision)]


def _rounded(value: object, digits: int) -> str:
    assert isinstance(value, int | float), f"%f of {value!r}"
    number = Decimal(repr(value))
    if not number.is_finite():
        return java_double(float(value))
    return format(number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP), "f")
