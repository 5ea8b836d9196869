"""The archive mark is written to its own file only."""

from pathlib import Path

import pytest

from skylarkmq.clients.spark.archive.mark import MarkFile
from skylarkmq.protocol.archive_mark import decode_mark


def test_a_symbolic_link_in_place_of_the_temporary_file_is_an_error(tmp_path: Path) -> None:
    """The file that it names stays as it is."""
    (tmp_path / "config").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("content")
    (tmp_path / "config" / "archive.json.tmp").symlink_to(victim)
    mark = MarkFile(tmp_path, "/archive")
    with pytest.raises(OSError, match="symbolic links"):
        mark.check()
    with pytest.raises(OSError, match="symbolic links"):
        mark.write(1, 1)
    assert victim.read_text() == "content"


def test_a_mark_replaces_the_last_one(tmp_path: Path) -> None:
    """No temporary file stays."""
    (tmp_path / "config").mkdir()
    mark = MarkFile(tmp_path, "/archive")
    mark.check()
    for end in (10, 20):
        mark.write(end, 1)
    (file,) = (tmp_path / "config").iterdir()
    assert decode_mark(file.read_bytes()).low_water_mark == 20
