"""Dumps the records of a store, for people and scripts.

The records of a queue are read from the offset in its first selected unit on. Without a valid unit, or without a queue,
they are read from the log's first byte on. Invalid records are skipped; the check reports them.

Source: docs/reference/disk.md, "CommitLog record"; docs/reference/wire.md, "Properties".
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from skylarkmq.broker.store.fsck.findings import Findings, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.fsck.queue_files import QueueOnDisk
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import PayloadError, inflate_steps
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import to_message

PREVIEW_CHARACTERS: Final = 80


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects records. `first` is a queue offset if a queue id is given, else a byte of the log. None: no limit."""

    topic: str | None = None
    queue_id: int | None = None
    first: int = 0


class DumpedRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A record. Times in ms. `body` is the beginning of its inflated text, with U+FFFD for invalid bytes."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_time: int
    born_time: int
    born_host: str
    sys_flag: int
    flag: int
    reconsume_times: int
    tags: str | None
    keys: str | None
    uniq_key: str | None
    properties: dict[str, str]
    body_size: int
    body: str


def dump(root: Path, selection: Selection, sizes: Sizes | None = None) -> Iterator[DumpedRecord]:
    """Yield the selected records in the order of the log."""
    sizes = sizes or Sizes.of(root)
    log = LogCheck(root, sizes.commit_log, Findings(), crashed=True, progress=no_progress)
    of_queue = selection.topic is not None and selection.queue_id is not None
    begin = _first_byte_of(root, selection, sizes) if of_queue else selection.first
    for records in log.records(begin):
        for record in records:
            if selection.topic not in {None, record.topic} or selection.queue_id not in {None, record.queue_id}:
                continue
            if (record.queue_offset if of_queue else record.physical_offset) >= selection.first:
                yield to_dumped_record(to_message(record))


def _first_byte_of(root: Path, selection: Selection, sizes: Sizes) -> int:
    """Return the byte of the log at which the selected queue's first record begins, or an earlier one."""
    assert selection.topic is not None
    assert selection.queue_id is not None
    queue = QueueOnDisk(root, selection.topic, selection.queue_id, sizes.consume_queue)
    unit = queue.read(selection.first, 1)
    if len(unit) < UNIT_SIZE:
        return 0
    physical_offset, size, _ = UNIT.unpack(unit)
    return int(physical_offset) if 0 < size < FILLER_RECORD_SIZE and physical_offset >= 0 else 0


def to_dumped_record(message: MessageExt) -> DumpedRecord:
    """Return a message as a dumped record."""
    properties: dict[str, Any] = dict(message.properties)
    host, port = message.born_host
    return DumpedRecord(
        physical_offset=message.physical_offset,
        size=message.size,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        store_time=message.store_timestamp,
        born_time=message.born_timestamp,
        born_host=f"{host}:{port}",
        sys_flag=message.sys_flag,
        flag=message.flag,
        reconsume_times=message.reconsume_times,
        tags=properties.pop("TAGS", None),
        keys=properties.pop("KEYS", None),
        uniq_key=properties.pop("UNIQ_KEY", None),
        properties=properties,
        body_size=len(message.body),
        body=_preview(message),
    )


def _preview(message: MessageExt) -> str:
    try:
        payload = _beginning(message)
    except PayloadError as problem:
        return f"({problem})"
    return payload[: 4 * PREVIEW_CHARACTERS].decode("utf-8", "replace")[:PREVIEW_CHARACTERS]


def _beginning(message: MessageExt) -> bytes:
    """Return enough of a body for the preview; it may inflate to a thousand times its size. Raises PayloadError."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message.body
    return next(inflate_steps(message.body, message.sys_flag), b"")
