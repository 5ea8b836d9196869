"""Number parsing by Java's rules.

Each function takes the UTF-8 of a property's value and returns the number, or raises EvaluationError. Python's own
functions accept more (`1_000`, blanks) and less (`5d`, `0x1p3`), so texts other than plain digits are checked first.

    whole numbers   an optional sign, digits of any script, within 32 or 64 bits
    floats          surrounding blanks, an optional sign, NaN, Infinity, decimal or hexadecimal (0x1.8p1), a final f or
    d

*Skylark's own limit*: a text longer than a thousand bytes is not a number.
"""

import math
import re
from typing import Final

from skylarkmq.protocol.filters.sql92.errors import EvaluationError

_WHOLE: Final = re.compile(r"([+-]?)(\d++)")
_FLOAT: Final = re.compile(
    rb"""[\x00-\x20]*+
         (?: ([+-]?(?: NaN | Infinity | (?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?))
           | ([+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++) )
         (?:(?<![Ny])[fFdD])?+ [\x00-\x20]*+""",
    re.VERBOSE,
)
_SAFE_DIGITS: Final = 9  # every number with so many digits fits into 32 bits
_MOST_DIGITS: Final = 19  # of a 64-bit number
_LAST_OF_BASIC_PLANE: Final = "\uffff"
_LONGEST: Final = 1_000


def int32(text: bytes) -> int:
    """Return a whole number of 32 bits."""
    if len(text) <= _SAFE_DIGITS and text.isdigit():
        return int(text)
    return _whole(text, 31)


def int64(text: bytes) -> int:
    """Return a whole number of 64 bits."""
    if len(text) <= _SAFE_DIGITS and text.isdigit():
        return int(text)
    return _whole(text, 63)


def _whole(text: bytes, bits: int) -> int:
    match = _WHOLE.fullmatch(text.decode("utf-8", "replace")) if len(text) <= _LONGEST else None
    if match is None or max(match[2]) > _LAST_OF_BASIC_PLANE:
        raise EvaluationError("not a whole number")
    digits = match[2].lstrip("0") or "0"
    if len(digits) <= _MOST_DIGITS:
        number = int(match[1] + digits)
        if -1 << bits <= number < 1 << bits:
            return number
    raise EvaluationError(f"more than {bits + 1} bits")


def double(text: bytes) -> float:
    """Return a number of double precision; a number that is too large becomes infinite."""
    if len(text) <= _LONGEST and text.replace(b".", b"", 1).isdigit():
        return float(text)
    match = _FLOAT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise EvaluationError("not a number")
    decimal, hexadecimal = match.groups()
    if decimal is not None:
        return float(decimal)
    try:
        return float.fromhex(hexadecimal.decode())
    except OverflowError:
        return -math.inf if hexadecimal.startswith(b"-") else math.inf


def double_for_literal(text: bytes) -> float:
    """Return the same as `double`, for a comparison with a literal: NaN, which Java orders last, becomes infinite."""
    number = double(text)
    return math.inf if math.isnan(number) else number


def double_in_order(text: bytes) -> tuple[int, float, float]:
    """Return `double` as a key with Java's order: -0.0 before 0.0, NaN after all other numbers and equal to itself."""
    number = double(text)
    return (1, 0.0, 0.0) if math.isnan(number) else (0, number, math.copysign(1.0, number))
