"""A group of RocketMQ 5.3 is moved to Skylark while it serves, and back. `migration.py` moves other versions, too."""

from pathlib import Path

import pytest

from tests.interop.migration import move_and_back

pytestmark = pytest.mark.interop


def test_a_group_moves_to_skylark_and_back(tmp_path: Path) -> None:
    """No message is lost or delivered again."""
    move_and_back("5.3.3", tmp_path)
