"""Every invariant of a store directory, without opening it for writing and without a running broker.

    small files      checkpoint, abort, lock, JSON tables
    queue files      lengths, gaps, where the units end
    index files      headers, chains
    timer files      units point at messages, slots at units
    log              record by record; with each some thousand, what queues and index have of them
    and then         what queues and index have beyond, committed offsets beyond the queues' ends, and the checkpoint
                     against the newest message

The log is read once, in a stream, and everything else is set against it in its order, so that memory depends on the
number of queues and slots and not on the number of messages.

After a crash (`abort` is there) what lags behind the log, and its torn end, are warnings: the next start sees to them.
On a store that a broker is writing to, the same holds for what is written during the check.

Source: docs/formats.md, "Store directory".
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from skylarkmq.broker.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
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
)
from skylarkmq.broker.store.fsck.timers import TimerFilesCheck
from skylarkmq.broker.store.retention.deleted_topics import DELETED_TOPICS_FILE


def check(
    root: Path,
    sizes: Sizes | None = None,
    *,
    delay_levels: Sequence[int] = parse_delay_levels(DEFAULT_DELAY_LEVELS),
    is_indexed: bool = True,
    progress: OnProgress = no_progress,
) -> Iterator[Finding]:
    """What is wrong with the store at `root`, as it is found; nothing for a good one.

    Without `sizes` they are guessed from the files. `delay_levels` in ms, level 1 first. Not `is_indexed`: messages may
    lack their keys in the index (messageIndexEnable is off). OSError when something cannot be read.
    """
    sizes = sizes or Sizes.of(root)
    found = Findings()
    crashed = is_crashed(root)
    deleted = deleted_topics(root)
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
    )
    index = IndexCheck(root, sizes.index, log, found, crashed=crashed, deleted=deleted, is_complete=is_indexed)
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
    yield from found.rest()


def deleted_topics(root: Path) -> dict[str, int]:
    """Topic -> the log's end when it was deleted; records before that count as gone."""
    return {topic: end for topic, end in read_table(root, DELETED_TOPICS_FILE).items() if isinstance(end, int)}
