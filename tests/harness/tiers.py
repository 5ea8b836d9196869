"""The tiers of tests, which are markers (tests/conftest.py describes them)."""

import re
from pathlib import Path
from typing import Final

import pytest

TIERS: Final = ("crash", "spark", "interop", "browser", "packaging", "daemon", "fuzz", "quick")
"""The tier of a test with two markers is the first of them. scheduling.py has the order in which tests start."""
QUICK: Final = TIERS[-1]
QUICK_RUN: Final = "not (packaging or daemon or crash or fuzz or spark or browser or interop)"
"""The marker expression of a plain `pytest` (pyproject.toml)."""

SLOWER_TIERS: Final = frozenset(TIERS[:-1])
_MARKER: Final = rf"pytest\.mark\.({'|'.join(TIERS[:-1])})\b"
_OF_A_MODULE: Final = re.compile(rf"^pytestmark = .*{_MARKER}", re.MULTILINE)
_OF_A_TEST: Final = re.compile(rf"\b{_MARKER}")


def has_only_slower_tests(path: Path) -> bool:
    """Return whether no test of a module is quick, because the module has a marker."""
    return _OF_A_MODULE.search(path.read_text()) is not None


def has_slower_tests(path: Path) -> bool:
    """Return whether a test of a module may belong to a tier other than the quick one."""
    return _OF_A_TEST.search(path.read_text()) is not None


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test; of a test with two markers, the one that comes first in TIERS."""
    markers = {marker.name for marker in item.iter_markers()}
    return next((tier for tier in TIERS if tier in markers), QUICK)
