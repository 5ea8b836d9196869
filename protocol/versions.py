"""Names of RocketMQ's versions, by the ordinal in every frame.

Each release has two ordinals, the first one for its snapshot. From 3.0.1 on the ordinals count up release by release.
`_MINORS` contains, for each minor version before 4.0, its first patch number (.1 instead of .0 for some) and the number
of releases it reserves. From 4.0 on every minor version has ten.

Source: docs/reference/wire.md, "Codes".
"""

from itertools import accumulate
from typing import Final

V3_0_7_SNAPSHOT: Final = 28
"""First version whose clients support RESET_CONSUMER_CLIENT_OFFSET (220) and GET_CONSUMER_STATUS_FROM_CLIENT (221)."""
V3_1_8_SNAPSHOT: Final = 62
"""First version whose clients support GET_CONSUMER_RUNNING_INFO (307) and CONSUME_MESSAGE_DIRECTLY (309)."""

_FIRST: Final = (
    "V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", "V3_0_0_BETA1", "V3_0_0_BETA2", "V3_0_0_BETA3", "V3_0_0_BETA4", "V3_0_0_BETA5",
    "V3_0_0_BETA6_SNAPSHOT", "V3_0_0_BETA6", "V3_0_0_BETA7_SNAPSHOT", "V3_0_0_BETA7", "V3_0_0_BETA8_SNAPSHOT",
    "V3_0_0_BETA8", "V3_0_0_BETA9_SNAPSHOT", "V3_0_0_BETA9", "V3_0_0_FINAL",
)  # fmt: skip
_MINORS: Final = ((1, 15), (0, 10), (0, 10), *((1, 9) for _ in range(7)))
"""For 3.0, 3.1, ... 3.9: the first patch number, and the number of releases."""
_STARTS: Final = tuple(accumulate((2 * count for _, count in _MINORS), initial=len(_FIRST)))
V4_0_0_SNAPSHOT: Final = _STARTS[-1]
HIGHEST: Final = 611
"""Ordinals above this have no name."""
_PER_MINOR: Final = 20


def version_name(ordinal: int) -> str:
    """Return the name, such as `V4_9_8` or `V5_3_3_SNAPSHOT`; `HIGHER_VERSION` above HIGHEST."""
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
