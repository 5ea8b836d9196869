"""Names of RocketMQ versions, from the ordinals that clients send: bounded, whatever a peer says of itself.

From 4.0 on every release is regular: ten patch levels per minor version, each with a snapshot in front. Source:
docs/formats.md, "Codes".
"""

from typing import Final

from protocol.codes import VERSION

FIRST_SNAPSHOT: Final = 212  # of V4_0_0
PATCHES: Final = 10
OLDER: Final = "v3"
OTHER: Final = "other"
_NEWEST: Final = VERSION + 2 * PATCHES * PATCHES


def version_name(ordinal: int) -> str:
    """`v5_3_3`, `v4_9_8_snapshot`; `v3` for anything before 4.0, `other` for what is no version."""
    if not 0 <= ordinal <= _NEWEST:
        return OTHER
    if ordinal < FIRST_SNAPSHOT:
        return OLDER
    release, is_final = divmod(ordinal - FIRST_SNAPSHOT, 2)
    minor, patch = divmod(release, PATCHES)
    major, minor = divmod(minor, PATCHES)
    return f"v{4 + major}_{minor}_{patch}" + ("" if is_final else "_snapshot")
