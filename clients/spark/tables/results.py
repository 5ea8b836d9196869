"""Results of the maintenance of a table, for people and as JSON, and its progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import Progress


class MaintenanceError(Exception):
    """An operation that could not finish; the rows of the table are unchanged, and the text names the remedy."""


class Compacted(msgspec.Struct, frozen=True, rename="camel"):
    """Files that a compaction replaced and wrote; the bytes are the size of the replaced files."""

    files_before: int
    files_after: int
    bytes_rewritten: int

    def __str__(self) -> str:
        return f"{self.files_before} files became {self.files_after}, {self.bytes_rewritten:,} bytes were rewritten"


class Expired(msgspec.Struct, frozen=True, rename="camel"):
    """Files that an expiry deleted, and snapshots that it removed; None for formats without snapshots."""

    files_deleted: int
    snapshots: int | None = None

    def __str__(self) -> str:
        snapshots = "" if self.snapshots is None else f"{self.snapshots} snapshots expired, "
        return f"{snapshots}{self.files_deleted} files were deleted"


OnProgress = Callable[[int, int], None]
"""Called with the number of finished steps and of all steps."""


@contextmanager
def steps_bar(description: str) -> Iterator[OnProgress]:
    """Show a progress bar on stderr while the body runs, if stderr is a terminal; the body reports its steps."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(description, total=None)
        yield lambda finished, steps: progress.update(bar, completed=finished, total=steps)
