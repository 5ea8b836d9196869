"""The tiers of tests, which are markers (tests/conftest.py describes them)."""

import re
from typing import Final

import pytest

TIERS: Final = ("crash", "spark", "interop", "browser", "packaging", "daemon", "fuzz", "quick")
"""The tier of a test with two markers is the first of them. scheduling.py has the order in which tests start."""
QUICK: Final = TIERS[-1]
QUICK_RUN: Final = "not (packaging or daemon or crash or fuzz or spark or browser or interop)"
"""The marker expression of a plain `pytest` (pyproject.toml)."""

SLOWER: Final = "|".join(TIERS[:-1])
MODULE_OF_A_SLOWER_TIER: Final = re.compile(rf"^pytestmark = .*pytest\.mark\.({SLOWER})\b", re.MULTILINE)
TEST_OF_A_SLOWER_TIER: Final = re.compile(rf"\bpytest\.mark\.({SLOWER})\b")


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test; of a test with two markers, the one that comes first in TIERS."""
    markers = {marker.name for marker in item.iter_markers()}
    return next((tier for tier in TIERS if tier in markers), QUICK)
