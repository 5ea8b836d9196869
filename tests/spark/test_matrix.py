"""The matrix in small: one kill each of the driver, of an executor and of the broker."""

from pathlib import Path

import pytest

from tests.spark.matrix import VICTIMS, parsed, run

pytestmark = pytest.mark.spark


def test_each_message_is_written_once_despite_kills(tmp_path: Path) -> None:
    """Bodies, keys, tags, properties and times are those of the store."""
    reports: list[str] = []
    figures = run(parsed(["--kills", "3", "--messages", "6000", "--pause", "1.5"]), tmp_path, reports.append)
    assert figures["is_exact"], (figures, reports)
    assert figures["kills"] == dict.fromkeys(VICTIMS, 1)
    assert figures["stored"] == 6000
