"""The files of tables: loaded in order, saved after changes and at the end, refused if they are damaged."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from skylarkmq.broker.app.sections.table_files import Kept, TableFiles
from skylarkmq.broker.base.errors import StartError


class Text:
    """A table that contains one text."""

    def __init__(self) -> None:
        self.text = ""
        self.listeners: list[Callable[[], None]] = []

    def load(self, data: bytes | None) -> None:
        self.text = "new" if data is None else data.decode()

    def encode(self) -> bytes:
        return self.text.encode()

    def on_change(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def change(self, text: str) -> None:
        self.text = text
        for listener in self.listeners:
            listener()


def decoded(data: bytes) -> str:
    """Decode a file. Raises ValueError for one that is not ASCII text."""
    return data.decode("ascii")


async def test_changes_are_saved_until_the_end(tmp_path: Path) -> None:
    """A change is on disk once `saved` returns; the last content is written at the end."""
    files, table = TableFiles(tmp_path), Text()
    assert not TableFiles(tmp_path).are_open
    async with AsyncExitStack() as running:
        files.open([Kept(table, "a.txt", decoded)], running)
        assert files.are_open
        assert (table.text, repr(files)) == ("new", "<TableFiles ['a.txt']>")
        table.change("changed")
        await files.saved("a.txt")
        assert (tmp_path / "a.txt").read_text() == "changed"
        table.text = "last"
    assert (tmp_path / "a.txt").read_text() == "last"
    async with AsyncExitStack() as running:
        again = Text()
        TableFiles(tmp_path).open([Kept(again, "a.txt", decoded)], running)
        assert again.text == "last"


async def test_a_damaged_file_ends_the_start(tmp_path: Path) -> None:
    """The tables before it are saved, and none counts as open."""
    (tmp_path / "b.txt").write_bytes(b"\xff")
    files, first = TableFiles(tmp_path), Text()
    async with AsyncExitStack() as running:
        with pytest.raises(StartError, match=r"b\.txt"):
            files.open([Kept(first, "a.txt", decoded), Kept(Text(), "b.txt", decoded)], running)
    assert not files.are_open
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("is_secret", [True, False])
async def test_a_file_with_secrets_has_no_backup(tmp_path: Path, is_secret: bool) -> None:
    """Only its owner may read it."""
    table = Text()
    async with AsyncExitStack() as running:
        files = TableFiles(tmp_path)
        files.open([Kept(table, "a.txt", decoded, is_secret)], running)
        for text in ("one", "two"):
            table.change(text)
            await files.saved("a.txt")
    assert (len(list(tmp_path.iterdir())) == 1) is is_secret
    assert not is_secret or (tmp_path / "a.txt").stat().st_mode & 0o077 == 0
