"""RocketMQ version names as label values: a bounded set, whatever version a peer sends. Source: docs/reference/wire.md,
"Codes"."""

from typing import Final

from skylarkmq.protocol import versions

OLDER: Final = "v3"
OTHER: Final = "other"


def version_name(ordinal: int) -> str:
    """Return a name such as `v5_3_3` or `v4_9_8_snapshot`; `v3` for versions before 4.0, `other` for an invalid one."""
    if not 0 <= ordinal <= versions.HIGHEST:
        return OTHER
    return OLDER if ordinal < versions.V4_0_0_SNAPSHOT else versions.version_name(ordinal).lower()
