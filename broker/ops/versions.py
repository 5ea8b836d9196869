"""Names of RocketMQ versions as labels: bounded, whatever a peer says of itself. Source: docs/formats.md, "Codes"."""

from typing import Final

from skylarkmq.protocol import versions

OLDER: Final = "v3"
OTHER: Final = "other"


def version_name(ordinal: int) -> str:
    """`v5_3_3`, `v4_9_8_snapshot`; `v3` for anything before 4.0, `other` for what is no version."""
    if not 0 <= ordinal <= versions.HIGHEST:
        return OTHER
    return OLDER if ordinal < versions.V4_0_0_SNAPSHOT else versions.version_name(ordinal).lower()
