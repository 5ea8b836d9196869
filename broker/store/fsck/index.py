"""Checks the index against the log: every item has its record, and every key of every message has its item.

Items and log are both in log order. For each stretch of the log, the expected pairs (physical offset, key hash) of its
messages are compared with the keys of the items that point there, file by file, as 64-bit numbers.

Records of deleted topics may have items or not. A second item for the same key is not reported, because it only makes a
result longer (recovery of RocketMQ leaves such items).

Source: docs/reference/disk.md, "IndexFile".
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from skylarkmq.broker.store.fsck.findings import Finding, Findings, OnProgress, Progress, Severity
from skylarkmq.broker.store.fsck.index_files import IndexOnDisk, Items, Numbers
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.index.hashing import hash_keys, int64_array
from skylarkmq.protocol.disk import INDEX_DIRECTORY, IndexLayout, index_keys, is_indexed, parse_index_file_name
from skylarkmq.protocol.record import Record

_PENDING_PAIRS: Final = 1 << 13
_HASH_BITS: Final = 31
_MOST_BYTES: Final = 1 << 31  # of the log in one comparison: a larger offset would not fit beside the hash


class IndexCheck:
    """The check of the index, fed with the log's records in order."""

    def __init__(
        self,
        root: Path,
        layout: IndexLayout,
        log: LogCheck,
        found: Findings,
        *,
        crashed: bool,
        deleted: Mapping[str, int],
        is_complete: bool,
        uncommitted_from: int | None = None,
    ) -> None:
        self._root = root
        self._layout = layout
        self._log = log
        self._found = found
        self._crashed = crashed
        self._deleted = deleted
        self._is_complete = is_complete
        self._uncommitted_from = uncommitted_from
        self._files: list[IndexOnDisk] = []
        self._keys: list[bytes] = []  # of the pairs not yet compared
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._optional: list[bool] = []
        self._keyed = 0
        self._expired = 0
        self._first_expired = -1
        self.newest = 0

    # before the log

    def check_files(self, progress: OnProgress) -> None:
        """Check each index file on its own."""
        directory = self._root / INDEX_DIRECTORY
        names = sorted(os.listdir(directory)) if directory.is_dir() else []
        for name in names:
            if (directory / name).is_file():
                self._check_file(name)
            progress(Progress("index files", names.index(name) + 1, len(names)))

    def _check_file(self, name: str) -> None:
        file = f"{INDEX_DIRECTORY}/{name}"
        length = (self._root / file).stat().st_size
        if parse_index_file_name(name) is None:
            self._add("stranger", Severity.NOTE, file, None, "not the name of an index file", "the file is not used")
        elif length != self._layout.size:
            what = f"the file has {length} bytes, expected {self._layout.size}"
            self._add("length", Severity.DAMAGE, file, 0, what, "the next start rebuilds the index")
        else:
            index = IndexOnDisk(self._root, name, self._layout)
            index.check(self._found, self._repairable)
            self._files.append(index)

    @property
    def _repairable(self) -> Severity:
        return Severity.WARNING if self._crashed else Severity.DAMAGE

    # with the log

    def add(self, records: Sequence[Record]) -> None:
        """Add the next records of the log."""
        keys, offsets, times, optional = self._keys, self._offsets, self._times, self._optional
        for record in records:
            found = record.keys if is_indexed(record.sys_flag) else []
            if found is None:
                found = index_keys(record.properties)
            offset = record.physical_offset
            if offsets and offset - offsets[0] > _MOST_BYTES:
                self._compare(offset)
            prefix = f"{record.topic}#".encode()
            is_optional = bool(self._deleted) and offset < self._deleted.get(record.topic, 0)
            if self._uncommitted_from is not None and offset >= self._uncommitted_from:
                is_optional = True
            for key in found:
                keys.append(prefix + key)
                offsets.append(offset)
                times.append(record.store_timestamp)
                optional.append(is_optional)
        if len(offsets) >= _PENDING_PAIRS:
            self._compare(self._log.end)

    def _compare(self, end: int) -> None:
        """Compare the collected pairs with the items of the same stretch, which ends before byte `end` of the log."""
        keys, offsets, times = self._keys[:], int64_array(self._offsets), int64_array(self._times)
        optional = np.array(self._optional, bool)
        for gathered in (self._keys, self._offsets, self._times, self._optional):
            gathered.clear()
        self._keyed += len(keys) - int(np.count_nonzero(optional))
        if not self._files:
            return
        base = int(offsets[0]) if keys else 0
        pairs = ((offsets - base) << _HASH_BITS) + hash_keys(keys) if keys else offsets
        order = np.argsort(pairs, kind="stable")
        has_item = optional.copy()
        for index in self._files:
            numbers, items = index.take_up_to(end)
            if len(numbers):
                self._compare_items(index, numbers, items, base, pairs[order], times[order], order, has_item)
        for number in np.flatnonzero(~has_item).tolist() if self._is_complete else ():
            self._report_missing(int(offsets[number]), keys[number])

    def _compare_items(
        self,
        index: IndexOnDisk,
        numbers: Numbers,
        items: Items,
        base: int,
        pairs: Numbers,
        times: Numbers,
        order: Numbers,
        has_item: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    ) -> None:
        offsets = items["offset"].astype(np.int64)
        of_items = (np.clip(offsets - base, -1, 1 << 32) << _HASH_BITS) + items["hash"]
        at = np.minimum(np.searchsorted(pairs, of_items), max(len(pairs) - 1, 0))
        agrees = (pairs[at] == of_items) if len(pairs) else np.zeros(len(items), bool)
        for left in np.flatnonzero(~agrees).tolist():
            self._report_dangling(index, int(numbers[left]), int(offsets[left]))
        places = at[agrees]
        has_item[order[_equal_ones(pairs, pairs[places])]] = True
        self._check_seconds(index, numbers[agrees], items[agrees], times[places])

    def _check_seconds(self, index: IndexOnDisk, numbers: Numbers, items: Items, times: Numbers) -> None:
        """Check the times of items. Item 1 may count from the begin of the previous file. Without a begin all are 0."""
        begin = index.header.begin_timestamp
        expected = np.clip((times - begin) // 1000, 0, (1 << 31) - 1 if begin > 0 else 0)
        if len(numbers) and numbers[0] == 1:
            index.first_time = int(times[0])
        if len(numbers) and numbers[-1] == index.count:
            index.last_time = int(times[-1])
        for wrong in np.flatnonzero((items["seconds"] != expected) & (numbers != 1)).tolist():
            what = f"item {numbers[wrong]} has {items['seconds'][wrong]} s, its record {expected[wrong]} s"
            at = index.offset_of(int(numbers[wrong]))
            self._add("seconds", self._repairable, index.name, at, what, "queries by key and time miss the message")

    def _report_missing(self, physical_offset: int, key: bytes) -> None:
        file, at = self._log.location_of(physical_offset)
        what = f"record {physical_offset} is not in the index by its key {key.decode('utf-8', 'replace')}"
        follows = "the next start adds it" if self._crashed else "queries by that key miss the message"
        self._add("unindexed", self._repairable, file, at, what, follows)

    def _report_dangling(self, index: IndexOnDisk, number: int, physical_offset: int) -> None:
        if 0 <= physical_offset < self._log.start:
            self._first_expired = physical_offset if not self._expired else self._first_expired
            self._expired += 1
            return
        what = f"item {number} points at {physical_offset}: no valid record with that key there"
        follows = "queries by key skip it"
        self._add("item", self._repairable, index.name, index.offset_of(number), what, follows)

    # after the log

    def finish(self) -> None:
        """Check the items beyond the records of the log, and the headers."""
        self._compare(1 << 62)
        for index in self._files:
            if index.count:
                self._check_header(index)
        if self._expired:
            what = f"{self._expired} index entries without a record, first at {self._first_expired}"
            follows = "their messages were deleted by retention; queries skip them"
            self._add("note", Severity.NOTE, INDEX_DIRECTORY, None, what, follows)
        if self._keyed and not self._files and self._is_complete:
            follows = "queries by key find no messages; correct only if messageIndexEnable is false"
            self._add(
                "none", Severity.WARNING, INDEX_DIRECTORY, None, "messages have keys, but there is no index", follows
            )

    def _check_header(self, index: IndexOnDisk) -> None:
        header = index.header
        self.newest = max(self.newest, header.end_timestamp)
        first, last = index.items(1, 2)["offset"][0], index.items(index.count, index.count + 1)["offset"][0]
        for name, at, said, is_right in (
            ("begins at offset", 16, header.begin_offset, first),
            ("ends at offset", 24, header.end_offset, last),
        ):
            if said != is_right:
                what = f"the header {name} {said}, its items at {is_right}"
                self._add("header", self._repairable, index.name, at, what, "recovery and queries skip items")
        for name, at, said, is_right in (
            ("first", 0, header.begin_timestamp, index.first_time),
            ("last", 8, header.end_timestamp, index.last_time),
        ):
            if is_right is not None and said != is_right:
                what = f"the header's {name} time is {said}, that of its message {is_right}"
                self._add("header", self._repairable, index.name, at, what, "queries by key and time miss messages")

    def _add(self, kind: str, severity: Severity, file: str, offset: int | None, what: str, follows: str) -> None:
        self._found.add(kind, Finding(severity, file, offset, what, follows))

    def __repr__(self) -> str:
        return f"<IndexCheck files={len(self._files)}>"


def _equal_ones(pairs: Numbers, values: Numbers) -> Numbers:
    """Return the positions in the sorted `pairs` of all elements that equal one of `values`."""
    return np.flatnonzero(np.isin(pairs, values))
