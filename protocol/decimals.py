"""Whole numbers that arrive as text: in message properties, bodies of op messages and recall handles.

Such text comes from clients, and from stores that other versions have written, so it can be anything: 5,000 digits, for
which `int` raises ValueError; digits of other scripts, which `str.isdecimal` accepts; a number that no field can hold.
"""

import re
from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def decimal(text: str | None, least: int = 0, most: int = INT64_MAX) -> int | None:
    """Return the number that `text` contains, in at most 19 ASCII digits. Return None if the text is missing, is not a
    number, or is outside [least, most]."""
    if text is None or _DECIMAL.fullmatch(text) is None:
        return None
    number = int(text)
    return number if least <= number <= most else None
