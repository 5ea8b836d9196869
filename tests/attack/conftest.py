"""Fixtures for tests of single attacks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.arena import Arena


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    with Arena(tmp_path) as arena:
        yield arena
