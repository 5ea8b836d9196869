"""One range of a segment: read, sorted, written, verified, published, recorded.

A task runs in this process, in a worker process or on a Spark executor, so it and its result are values. It may run
twice, also at the same time (Spark repeats tasks): each attempt writes files of its own under temporary names, and the
names and contents of the published files depend only on the range. A task removes only its own temporary files.
"""

import uuid
from pathlib import Path

import msgspec

from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.log import Log
from skylarkmq.clients.arrow.store.queues import StoredQueues
from skylarkmq.clients.spark.archive.directory import ArchiveDirectory, Entry, FileEntry, file_name
from skylarkmq.clients.spark.archive.files import NotVerified, OtherBody, verify_messages, write_messages
from skylarkmq.clients.spark.archive.pieces import Piece, PieceReader


class Source(msgspec.Struct, frozen=True):
    """The store to be archived, and which of its records. `log_paths`: the directories of the log's segments."""

    path: str
    log_paths: tuple[str, ...]
    extent: Extent
    everything: bool = False
    skip_damaged: bool = False
    force_gap: bool = False


class ArchiveTask(msgspec.Struct, frozen=True):
    """Records that begin in [begin, end), stored before `limit_ms` if it is set. The range is within one segment.

    `is_whole`: the range ends with its segment.
    """

    source: Source
    archive: str
    broker_name: str
    begin: int
    end: int
    is_whole: bool
    limit_ms: int | None = None


def run_task(task: ArchiveTask) -> Entry:
    """Archive a range and return its entry in the manifest. Raises StoreUnreadable, NotVerified, OSError."""
    source = task.source
    directory = ArchiveDirectory(task.archive, task.broker_name)
    log = Log.at(map(Path, source.log_paths), force_gap=source.force_gap)
    try:
        reader = PieceReader(
            log, StoredQueues(Path(source.path)), source.extent,
            everything=source.everything, skip_damaged=source.skip_damaged,
        )  # fmt: skip
        files = [
            _archive_piece(directory, reader, piece)
            for piece in reader.pieces(task.begin, task.end, task.limit_ms)
            if piece.rows
        ]
    finally:
        log.close()
    entry = Entry(
        begin=task.begin,
        end=task.end if task.is_whole else max(reader.end, task.begin),
        rows=sum(file.rows for file in files),
        left_out=reader.left_out,
        damaged=reader.damaged,
        first_stored_ms=reader.first_stored_ms,
        last_stored_ms=reader.last_stored_ms,
        everything=source.everything,
        files=tuple(files),
    )
    if entry.end > entry.begin:
        directory.record(entry)
    return entry


def _archive_piece(directory: ArchiveDirectory, reader: PieceReader, piece: Piece) -> FileEntry:
    name = file_name(piece.begin)
    temporary = directory.temporary(name, uuid.uuid4().hex)
    try:
        with directory.open_output(temporary) as sink:
            checksum = write_messages(sink, piece, directory.broker_name)
        size = directory.settle(temporary)
        with directory.open_input(temporary) as source:
            verify_messages(source, checksum, piece)
        directory.publish(temporary, name)
    except (NotVerified, OSError) as problem:
        directory.remove(temporary)
        if isinstance(problem, OtherBody):
            reader.check(problem.offset)
        raise
    return FileEntry(name=name, begin=piece.begin, end=piece.end, rows=piece.rows, bytes=size)
