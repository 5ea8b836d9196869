"""A group of RocketMQ 4.9 is moved to Skylark while it serves, and back.

`migration.py` moves one of 5.3, too: its slave copies the first tables a minute after its start, that of 4.9 after 3 s.
"""

from pathlib import Path

import pytest

from tests.interop.migration import move_and_back

pytestmark = pytest.mark.interop


def test_a_group_moves_to_skylark_and_back(tmp_path: Path) -> None:
    """No message is lost or delivered again."""
    move_and_back("4.9.7", tmp_path)
