"""Names of RocketMQ versions."""

import pytest

from skylarkmq.broker.ops.versions import version_name
from skylarkmq.protocol.codes import VERSION, VERSION_NAME


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (0, "v3"), (121, "v3"), (211, "v3"), (212, "v4_0_0_snapshot"), (213, "v4_0_0"), (232, "v4_1_0_snapshot"),
        (317, "v4_5_2"), (401, "v4_9_4"), (409, "v4_9_8"), (413, "v5_0_0"), (477, "v5_3_2"), (-1, "other"),
        (611, "v5_9_9"), (612, "other"), (1_000_000, "other"),
    ],
)  # fmt: skip
def test_a_version_has_its_usual_name(ordinal: int, name: str) -> None:
    """Releases and snapshots by number; old ones share a name; anything else is `other`."""
    assert version_name(ordinal) == name


def test_our_own_version_has_the_right_name() -> None:
    """The name of our ordinal is that of our version."""
    assert version_name(VERSION) == VERSION_NAME.lower()


def test_the_number_of_names_is_limited() -> None:
    """A label must not depend on arbitrary values of peers."""
    assert len({version_name(ordinal) for ordinal in range(-(2**15), 2**15)}) < 600
