"""Names of RocketMQ's versions, by the ordinal that stands in every frame.

Each release has two, its snapshot first. From 3.0.1 on they count up release by release; where a minor version began at
.1 instead of .0, and how many releases it left room for, is told by `_MINORS`. From 4.0 on every minor version has ten.

Source: docs/formats.md, "Codes".
"""

from itertools import accumulate
from typing import Final

V3_0_7_SNAPSHOT: Final = 28
"""From here on clients know 220 and 221."""
V3_1_8_SNAPSHOT: Final = 62
"""From here on clients know 307 and 309."""

_FIRST: Final = (
    "V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", "V3_0_0_BETA1", "V3_0_0_BETA2", "V3_0_0_BETA3", "V3_0_0_BETA4", "V3_0_0_BETA5",
    "V3_0_0_BETA6_SNAPSHOT", "V3_0_0_BETA6", "V3_0_0_BETA7_SNAPSHOT", "V3_0_0_BETA7", "V3_0_0_BETA8_SNAPSHOT",
    "V3_0_0_BETA8", "V3_0_0_BETA9_SNAPSHOT", "V3_0_0_BETA9", "V3_0_0_FINAL",
)  # fmt: skip
_MINORS: Final = ((1, 15), (0, 10), (0, 10), *((1, 9) for _ in range(7)))
"""Of 3.0, 3.1, ... 3.9: the first patch number, and how many there are."""
_STARTS: Final = tuple(accumulate((2 * count for _, count in _MINORS), initial=len(_FIRST)))
V4_0_0_SNAPSHOT: Final = _STARTS[-1]
HIGHEST: Final = 611
"""What lies above has no name."""
_PER_MINOR: Final = 20


def version_name(ordinal: int) -> str:
    """`V4_9_8`, `V5_3_3_SNAPSHOT`; what lies above all that have a number is `HIGHER_VERSION`."""
    if ordinal > HIGHEST:
        return "HIGHER_VERSION"
    if ordinal < len(_FIRST):
        return _FIRST[max(ordinal, 0)]
    if ordinal >= V4_0_0_SNAPSHOT:
        minor, place = divmod(ordinal - V4_0_0_SNAPSHOT, _PER_MINOR)
        return _name(4 + minor // 10, minor % 10, place)
    minor = max(n for n, start in enumerate(_STARTS) if start <= ordinal)
    return _name(3, minor, ordinal - _STARTS[minor] + 2 * _MINORS[minor][0])


def _name(major: int, minor: int, place: int) -> str:
    return f"V{major}_{minor}_{place // 2}" + ("" if place % 2 else "_SNAPSHOT")
