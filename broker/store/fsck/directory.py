"""Checks every invariant of a store directory, read-only and without a running broker.

    small files      checkpoint, abort, lock, JSON tables
    queue files      lengths, gaps, where the units end
    index files      headers, chains
    timer files      units point at messages, slots at units
    log              record by record; after each few thousand, their queue units and index items
    at the end       remaining units and items, committed offsets beyond the queues' ends, and the checkpoint against
                     the newest message

The log is read once as a stream, and all other files are compared in the order of the log. So memory use depends on the
number of queues and slots and not on the number of messages.

After a crash (`abort` exists), files that lag behind the log and the torn end of the log are warnings, because the next
start repairs them. The same holds for data that a running broker writes during the check. Records above the committed
mark of a replica are in no queue yet: that is a note.

Source: docs/reference/disk.md, "Store directory".
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.broker.store.fsck.findings import Finding, Findings, OnProgress, no_progress
from skylarkmq.broker.store.fsck.index import IndexCheck
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.fsck.offsets import check_committed
from skylarkmq.broker.store.fsck.queues import QueueCheck
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.broker.store.fsck.state import (
    TOPICS_FILE,
    check_checkpoint,
    check_small_files,
    is_crashed,
    read_table,
    uncommitted_from,
)
from skylarkmq.broker.store.fsck.timers import TimerFilesCheck
from skylarkmq.broker.store.queue.deleted_topics import DELETED_TOPICS_FILE


def check(
    root: Path,
    sizes: Sizes | None = None,
    *,
    delay_levels: Sequence[int] = parse_delay_levels(DEFAULT_DELAY_LEVELS),
    is_indexed: bool = True,
    progress: OnProgress = no_progress,
) -> Iterator[Finding]:
    """Yield the problems of the store at `root` as they are found; none for a consistent store.

    Without `sizes` they are inferred from the files. `delay_levels` in ms, level 1 first. Not `is_indexed`: messages
    may lack index items (messageIndexEnable is off). Raises OSError if a file cannot be read.
    """
    sizes = sizes or Sizes.of(root)
    found = Findings()
    crashed = is_crashed(root)
    deleted = deleted_topics(root)
    uncommitted = uncommitted_from(root)
    log = LogCheck(root, sizes.commit_log, found, crashed=crashed, progress=progress)
    queues = QueueCheck(
        root,
        sizes.consume_queue,
        log,
        found,
        crashed=crashed,
        delay_levels=delay_levels,
        deleted=deleted,
        topics=read_table(root, TOPICS_FILE).get("topicConfigTable"),
        uncommitted_from=uncommitted,
    )
    index = IndexCheck(
        root,
        sizes.index,
        log,
        found,
        crashed=crashed,
        deleted=deleted,
        is_complete=is_indexed,
        uncommitted_from=uncommitted,
    )
    check_small_files(root, found)
    yield from found.take()
    queues.check_files(progress)
    yield from found.take()
    index.check_files(progress)
    yield from found.take()
    TimerFilesCheck(root, found).run()
    yield from found.take()
    for records in log.records():
        queues.add(records)
        index.add(records)
        yield from found.take()
    queues.finish()
    index.finish()
    check_committed(root, queues.ends(), found)
    check_checkpoint(root, log.newest, index.newest, bool(log.records_read), found)
    yield from found.take()
    yield from found.summaries()


def deleted_topics(root: Path) -> dict[str, int]:
    """Return for each deleted topic the log's end at its deletion. Its records before that are deleted too."""
    return {topic: end for topic, end in read_table(root, DELETED_TOPICS_FILE).items() if isinstance(end, int)}
