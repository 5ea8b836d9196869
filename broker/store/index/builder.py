"""The input of the index: dispatched messages, and the messages in the log that the index lacks.

The index lacks messages after a crash (files that were possibly not synced are removed), after a loss of its files,
after a time with `messageIndexEnable` off, and when keys are dropped because too many of them wait for a full disk. The
index is then behind: it ignores dispatched messages, and the log is read from the end of the files to the end of the
dispatched records. At startup this happens before requests are served, except for the part beyond 1 GiB if
`messageIndexSafe` is off. Otherwise it happens in slices of about a millisecond.

This module removes nothing from the log. If a record is damaged, the rest of its segment is skipped.

Files are kept only if they agree with this log: each one continues after the previous one, and the last message of the
newest one is in the log and has the last key. A log without an index whose first and last messages have no keys counts
as a log without keys.

Source: docs/reference/disk.md, "IndexFile", "Recovery".
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Self

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.index.entries import Indexed
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.index.index import Index
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.protocol.disk import IndexLayout, index_hash, index_keys, is_indexed
from skylarkmq.protocol.record import Blank, Record, UnreadableTopic, parse

log = logging.getLogger(__name__)

UNSAFE_CATCH_UP_BYTES: Final = 1 << 30
"""The most bytes of the log that a start reads for the index if `messageIndexSafe` is off."""

_SLICE_RECORDS: Final = 256
_SLICE_PAUSE_S: Final = 0.004
_READ_AHEAD_BYTES: Final = 4 << 20
_MOST_WAITING: Final = 1 << 18  # keys, about 40 MB
_PROGRESS_BYTES: Final = 1 << 28  # one log line per 256 MiB


class IndexFeed:
    """Adds messages of one log to the index."""

    def __init__(self, index: Index, commit_log: CommitLog, helper: Helper) -> None:
        self.index = index
        index.on_lost = self._fall_behind
        self._log = commit_log
        self._helper = helper
        self._end = 0  # everything below this byte of the log is dispatched
        self._steps: Iterator[None] | None = None  # while the index is behind
        self._at = 0  # the byte of the log up to which `_steps` has read
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(
        cls,
        config: StoreConfig,
        commit_log: CommitLog,
        disk: Disk,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        helper: Helper,
    ) -> Self:
        """Return the feed for the index of a store."""
        layout = IndexLayout(config.max_hash_slot_num, config.max_index_num)
        index = Index(config.store_path_root_dir, layout, disk, now_ms, commit_log.flags, steady_ms)
        return cls(index, commit_log, helper)

    # load, start, close

    def open(self, dispatched: int, *, trusted_to: int | None) -> None:
        """Open the files that can be trusted (`Index.load`) and agree with this log, which is dispatched up to a byte.

        Raises OSError."""
        is_cut = self.index.load(trusted_to=trusted_to)
        files = self.index.files
        gapless = next((at for at in range(1, len(files)) if self._lacks_between(*files[at - 1 : at + 1])), len(files))
        while files and (len(files) > gapless or not self._agrees_with_log(is_torn=trusted_to is not None)):
            self.index.drop_newest()
        self._end = dispatched
        if self.index.files or is_cut or trusted_to is not None or self._has_keys():
            self._begin_to_catch_up()

    def catch_up(self, most_bytes: int | None, check_stop: Callable[[], None] = lambda: None) -> None:
        """Add the messages that the index lacks, as far as the disk permits; after `most_bytes` of log, return early.

        `check_stop` runs between slices and may raise to end the call.
        """
        begin = self._at
        for _ in self._steps or ():
            check_stop()
            if most_bytes is not None and self._at - begin >= most_bytes:
                log.warning("index is rebuilt while serving, queries by key miss messages from=%d", self._at)
                return

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start the index, before messages are dispatched."""
        self._loop = loop
        self.index.start(loop)
        if loop is not None:
            self.index.preallocate_with(self._helper)

    def _agrees_with_log(self, *, is_torn: bool) -> bool:
        """Return whether the log has the newest message of the index with the last of its keys.

        After a crash the newest file must also end at the time of that message: with an older time, left in a torn
        header, the file would wrongly count as synced.
        """
        record = self._record_at(self.index.newest)
        if record is None:
            return self.index.newest < self._log.files.min_offset
        if is_torn and self.index.files[-1].header.end_timestamp != record.store_timestamp:
            return False
        keys = (f"{record.topic}#{key.decode('utf-8', 'replace')}" for key in index_keys(record.properties))
        return self.index.last_hash() in map(index_hash, keys)

    def _lacks_between(self, before: IndexFile, after: IndexFile) -> bool:
        """Return whether a file is missing between two, judged by the next few records."""
        at, end = before.header.end_offset, after.header.begin_offset
        record = self._record_at(at)
        for _ in range(_SLICE_RECORDS):
            if record is None or record.physical_offset >= end:
                break
            if record.physical_offset > at and is_indexed(record.sys_flag) and index_keys(record.properties):
                return True
            record = self._record_at(record.physical_offset + record.size)
        return False

    def _has_keys(self) -> bool:
        ends = map(self._record_at, (self._log.files.min_offset, self._log.last_record))
        return any(record is not None and index_keys(record.properties) for record in ends)

    def _record_at(self, offset: int) -> Record | None:
        segment = self._log.files.find(offset)
        if segment is None or offset >= self._log.written or not segment.check_for_lost_bytes():
            return None
        found = parse(segment.view, offset - segment.start, check_body=False)
        return found if isinstance(found, Record) and found.physical_offset == offset else None

    # adding

    def add(self, messages: Sequence[Indexed], end: int) -> None:
        """Add dispatched messages; everything below byte `end` of the log is now dispatched."""
        self._end = end
        if self._steps is not None:
            return
        self.index.add(messages)
        if self.index.waiting > _MOST_WAITING and self.index.is_failing:
            log.error("index falls behind waiting=%d", self.index.waiting)
            self._fall_behind()

    def _fall_behind(self) -> None:
        self.index.forget_waiting()
        self._begin_to_catch_up()

    def _begin_to_catch_up(self) -> None:
        self._at = max(self.index.newest, self._log.files.min_offset)
        self._steps = self._catch_up()

    def step(self) -> None:
        """Put waiting keys, and continue reading the log if the index is behind."""
        self.index.step()
        if self._timer is None:
            self._advance()

    def _advance(self) -> None:
        self._timer = None
        if self._steps is None or self.index.is_failing:
            return
        next(self._steps, None)
        if self._loop is not None:
            self._timer = self._loop.call_later(_SLICE_PAUSE_S, self._advance)

    def close(self) -> None:
        """Stop reading, and close the files."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop = None
        self.index.close()

    def follow(self, log_start: int, _now_ms: int) -> None:
        """Remove the files whose messages are all before byte `log_start`, where the log begins now."""
        for file in self.index.take_before(log_start):
            log.info("index file deleted path=%s end_offset=%d", file.path, file.header.end_offset)
            self._helper.submit(partial(_remove, file))

    def _catch_up(self) -> Iterator[None]:
        """Add records from the end of the index to the end of the dispatched records, a slice at a time."""
        start = progress = self._at
        count = 0
        while self._at < self._end and not self.index.is_failing:
            records = self._next_records()
            self.index.add(records)
            count += len(records)
            if self._at - progress >= _PROGRESS_BYTES:
                progress = self._at
                log.info("rebuilding index offset=%d records=%d", self._at, count)
            yield
        self.index.put_waiting()
        self._steps = None
        if self.index.is_failing:
            self._fall_behind()
        elif count > 1:
            log.info("index rebuilt from=%d to=%d records=%d", start, self._at, count)

    def _next_records(self) -> list[Record]:
        """Return up to a slice of records from `_at`, and move `_at` past them."""
        records: list[Record] = []
        segment = self._segment_at()
        if segment is not None and self._loop is not None:
            os.posix_fadvise(segment.fd, self._at - segment.start, _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        while segment is not None and len(records) < _SLICE_RECORDS and self._at < self._end:
            found = parse(segment.view, self._at - segment.start, check_body=False)
            if isinstance(found, Record) and found.physical_offset == self._at:
                if is_indexed(found.sys_flag):
                    records.append(found)
                self._at += found.size
                continue
            if isinstance(found, UnreadableTopic) and found.record is not None:
                self._at += found.record.size
                continue
            if not isinstance(found, Blank):
                log.warning("index skips bytes that are not a record from=%d to=%d", self._at, segment.end)
            self._at = segment.end
            segment = self._segment_at()
        if segment is None:
            self._at = self._end
        return records

    def _segment_at(self) -> MappedFile | None:
        """Return the segment at `_at`, which moves past a gap in the log or a segment with lost bytes."""
        segment = self._log.files.at_or_after(self._at)
        while segment is not None and not segment.check_for_lost_bytes():
            log.warning("index skips a segment with lost bytes from=%d to=%d", self._at, segment.end)
            self._at = segment.end
            segment = self._log.files.at_or_after(self._at)
        if segment is not None:
            self._at = max(self._at, segment.start)
        return segment

    def __repr__(self) -> str:
        return f"<IndexFeed {self.index!r} behind={self._steps is not None}>"


def _remove(file: IndexFile) -> None:
    """Remove the file in the helper thread: freeing the blocks of a large file takes long."""
    try:
        file.remove()
    except OSError as problem:
        log.warning("index file not removed, the next start finds it again path=%s error=%s", file.path, problem)
