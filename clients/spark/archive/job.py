"""One run of the archive job: examine the store, archive what is due, move the mark.

Order, for each range: its files and its manifest entry are durable, then the Iceberg table refers to the files, then
the mark moves over it. The mark moves over a range only if all earlier ones in the log are archived. A job may be
killed at any point; the next run continues from the manifest.

The mark's time is renewed when a run completes, also if nothing was due: the broker's hold needs a job that runs
(`archiveHoldMaxHours`), not one that finds work.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from skylarkmq.clients.spark.archive.directory import ArchiveDirectory, ArchiveError, Entry
from skylarkmq.clients.spark.archive.iceberg_table import IcebergTarget, open_table
from skylarkmq.clients.spark.archive.mark import MarkFile
from skylarkmq.clients.spark.archive.planning import DueRange, ExaminedStore
from skylarkmq.clients.spark.archive.runners import Runner
from skylarkmq.clients.spark.archive.task import ArchiveTask, Source


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to archive, and where. `older_than_ms`: age of the newest message of a segment."""

    store: Path
    log_directories: tuple[Path, ...]
    archive: str
    broker_name: str
    older_than_ms: int
    include_last: bool = False
    everything: bool = False
    skip_damaged: bool = False
    force_gap: bool = False
    writes_mark: bool = True
    iceberg: IcebergTarget | None = None


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a run. Bytes are counted in the log and in the files; `missed` are ranges [begin, end) of the log
    that were deleted before they were archived, in all runs."""

    ranges: int
    messages: int
    left_out: int
    damaged: int
    files: int
    log_bytes: int
    file_bytes: int
    mark: int
    missed: list[tuple[int, int]]
    seconds: float


class ArchiveJob:
    """A run that was planned. Created by `opened_job`."""

    def __init__(self, settings: ArchiveSettings, directory: ArchiveDirectory) -> None:
        self._settings = settings
        self._directory = directory
        self._entries = directory.entries()
        self._store = ExaminedStore(
            settings.store, settings.log_directories, force_gap=settings.force_gap, may_have_batches=settings.everything
        )
        self._store.check_identity(self._entries, settings.archive)
        self._mark = MarkFile(settings.store, settings.archive) if settings.writes_mark else None
        if self._mark is not None:
            _check(self._mark)
        self._table = None if settings.iceberg is None else open_table(settings.iceberg, directory)
        self._marked = -1
        limit_ms = _now_ms() - settings.older_than_ms
        self._due = self._store.due(self._entries, limit_ms, include_last=settings.include_last)

    @property
    def log_bytes(self) -> int:
        """How many bytes of the log are to be archived."""
        return sum(due.end - due.begin for due in self._due)

    def run(self, runner: Runner, on_entry: Callable[[Entry], object]) -> Summary:
        """Archive what is due; `on_entry` is called for each range. Raises the error of the first one that fails."""
        begun = time.monotonic()
        self._directory.discard([(due.begin, due.end) for due in self._due])
        self._move_mark()
        made = []
        for entry in runner.run([self._task(due) for due in self._due]):
            if entry.end > entry.begin:
                made.append(entry)
                self._entries = sorted([*self._entries, entry], key=lambda known: known.begin)
                self._move_mark()
            on_entry(entry)
        self._write_mark(self._store.mark(self._entries))
        return self._summary(made, time.monotonic() - begun)

    def _task(self, due: DueRange) -> ArchiveTask:
        settings = self._settings
        source = Source(
            path=str(settings.store),
            log_paths=tuple(map(str, settings.log_directories)),
            extent=self._store.extent,
            everything=settings.everything,
            skip_damaged=settings.skip_damaged,
            force_gap=settings.force_gap,
        )
        archive = settings.archive
        return ArchiveTask(source, archive, settings.broker_name, due.begin, due.end, due.is_whole, due.limit_ms)

    def _move_mark(self) -> None:
        """Add archived ranges to the table, and move the mark over them, as far as they follow each other."""
        mark = self._store.mark(self._entries)
        if self._table is not None:
            self._table.add([entry for entry in self._entries if entry.end <= mark])
        if self._entries and mark > self._marked:
            self._write_mark(mark)

    def _write_mark(self, mark: int) -> None:
        self._marked = mark
        if self._mark is not None:
            self._mark.write(mark, _now_ms())

    def _summary(self, made: list[Entry], seconds: float) -> Summary:
        return Summary(
            ranges=len(made),
            messages=sum(entry.rows for entry in made),
            left_out=sum(entry.left_out for entry in made),
            damaged=sum(entry.damaged for entry in made),
            files=sum(len(entry.files) for entry in made),
            log_bytes=sum(entry.end - entry.begin for entry in made),
            file_bytes=sum(file.bytes for entry in made for file in entry.files),
            mark=self._marked,
            missed=self._store.missed(self._entries),
            seconds=round(seconds, 3),
        )

    def close(self) -> None:
        """Close the files of the log."""
        self._store.log.close()

    def __repr__(self) -> str:
        return f"<ArchiveJob {self._store!r} due={len(self._due)}>"


@contextmanager
def opened_job(settings: ArchiveSettings) -> Iterator[ArchiveJob]:
    """Plan a run, with the archive locked. Raises ArchiveError and StoreUnreadable, with the remedy."""
    directory = ArchiveDirectory(settings.archive, settings.broker_name)
    directory.prepare()
    with directory.locked():
        job = ArchiveJob(settings, directory)
        try:
            yield job
        finally:
            job.close()


def _check(mark: MarkFile) -> None:
    try:
        mark.check()
    except OSError as problem:
        advice = "run the job as the broker's user, or set --no-mark"
        raise ArchiveError(f"the mark cannot be written: {problem}; {advice}") from problem


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
