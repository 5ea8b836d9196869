"""Version names by ordinal."""

import pytest

from skylarkmq.protocol.codes import VERSION, VERSION_NAME
from skylarkmq.protocol.versions import version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (-1, "V3_0_0_SNAPSHOT"),
        (0, "V3_0_0_SNAPSHOT"),
        (15, "V3_0_0_FINAL"),
        (28, "V3_0_7_SNAPSHOT"),
        (37, "V3_0_11"),
        (62, "V3_1_8_SNAPSHOT"),
        (63, "V3_1_8"),
        (121, "V3_4_9"),
        (213, "V4_0_0"),
        (232, "V4_1_0_SNAPSHOT"),
        (317, "V4_5_2"),
        (409, "V4_9_8"),
        (413, "V5_0_0"),
        (VERSION, VERSION_NAME),
        (612, "HIGHER_VERSION"),
    ],
)
def test_an_ordinal_has_its_name(ordinal: int, name: str) -> None:
    """The versions of known clients, and ordinals above all versions."""
    assert version_name(ordinal) == name
