"""Spark's log of a query, in a local directory instead of Hadoop's file systems."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from skylarkmq.clients.spark.tables.hadoop_path import HadoopFile, HadoopPath
from skylarkmq.clients.spark.tables.offset_log import OffsetLog, end_in, last_number

OFFSET = '{"@log": {"a": 5}, "T": {"a": {"0": 3}}}'


class LocalPath:
    """The methods of a HadoopPath that the log calls."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.uri = f"file:{path}"
        self.name = path.name

    def child(self, name: str) -> "LocalPath":
        return LocalPath(self._path / name)

    def exists(self) -> bool:
        return self._path.exists()

    def files(self) -> Iterator[HadoopFile]:
        return (HadoopFile(cast(Any, LocalPath(path)), 0) for path in self._path.iterdir())

    def text(self) -> str:
        return self._path.read_text()


def local(path: Path) -> HadoopPath:
    return cast("HadoopPath", LocalPath(path))


def write(directory: Path, *names: str) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text(f'v1\n{{"conf":{{}}}}\n{OFFSET}')


def test_the_log_has_the_ends_of_batches_and_their_commits(tmp_path: Path) -> None:
    """Checksums and temporary files are not batches; a query without a directory has none."""
    log = OffsetLog(local(tmp_path))
    assert (log.checkpoint, log.last(), log.has_commits()) == (f"file:{tmp_path}", None, False)
    write(tmp_path / "offsets", "0", "9", "10", ".10.crc", ".11.tmp")
    assert (log.last(), log.has_commits()) == (10, False)
    assert log.end(9) == {"@log": {"a": 5}, "T": {"a": {"0": 3}}}
    write(tmp_path / "commits", ".0.crc")
    assert not log.has_commits()
    write(tmp_path / "commits", "0")
    assert log.has_commits()


def test_a_compacted_log_ends_at_its_last_batch(tmp_path: Path) -> None:
    """As that of the file sink."""
    write(tmp_path, "9.compact", "8", "10.compact.crc")
    assert last_number(local(tmp_path)) == 9


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{}", "v1\n{}\n-", f"v1\n{{}}\n{OFFSET}\n{OFFSET}"])
def test_another_format_is_refused(text: str) -> None:
    """Such as that of two sources, or of a later version of Spark; the error names the file."""
    with pytest.raises(RuntimeError, match="file:/offsets/3 has a format of Spark that is not supported"):
        end_in(text, "file:/offsets/3")


@pytest.mark.parametrize("offset", ["{", '{"T": ' + "9" * 5_000 + "}", '{"T": ' + "[" * 100_000])
def test_a_damaged_log_is_refused(offset: str) -> None:
    """The error names the file."""
    with pytest.raises(RuntimeError, match=r"file:/offsets/3 is damaged .*: restore the checkpoint"):
        end_in(f"v1\n{{}}\n{offset}", "file:/offsets/3")
