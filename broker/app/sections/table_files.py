"""The files of a broker's tables: loaded at the start, saved after changes, and once more at the stop.

A section names its tables and their files in `kept`; the daemon opens them in order.
"""

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.metadata.saver import Saver, Table
from skylarkmq.broker.store.files.errors import StoreError


class Kept(NamedTuple):
    """A table, the name of its file, and the decoder that rejects a damaged file. A file with secrets has no backup."""

    table: Table
    file: str
    decode: Callable[[bytes], object]
    is_secret: bool = False


class TableFiles:
    """The files in `directory`. `are_open`: all tables are loaded."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._savers: dict[str, Saver] = {}
        self.are_open = False

    def __repr__(self) -> str:
        return f"<TableFiles {list(self._savers)}>"

    def open(self, tables: Iterable[Kept], running: AsyncExitStack) -> None:
        """Load the tables, and save their changes until `running` ends. Raises StartError for a damaged file."""
        try:
            for table, file, decode, is_secret in tables:
                saver = Saver.open(table, self._directory / file, decode, is_secret=is_secret)
                self._savers[file] = saver
                running.push_async_callback(saver.close)
        except StoreError as error:
            raise StartError(str(error)) from None
        self.are_open = True

    async def saved(self, file: str) -> None:
        """Wait until a file contains every change so far. Raises OSError if it cannot be written."""
        await self._savers[file].saved()
