"""The offsets of the last batch, kept in the table: from there a query continues whose checkpoint was lost.

    iceberg, PyIceberg          property skylark.offsets.<id>    in the commit that adds the rows
    iceberg, Spark's runtime    property skylark.offsets.<id>    in a commit before that
    delta                       userMetadata                     in the commit that adds the rows
    content    {"checkpoint": "file:/lake.checkpoint/iceberg", "mark": {"query": ..., "batch": 12},
                "start": {"Orders": {"broker-a": {"0": 10}}}, "end": {"Orders": {"broker-a": {"0": 17}}}}

`<id>` is a hash of the checkpoint's path, which is the name of a pipeline: its backfills and its stream have the same
path, and pipelines with other topics or filters that write to the same table have other paths. Only the last batch of a
path is kept. Its size is about 30 bytes for each queue.

Why there is no gap and no double. Spark runs the batches of a query one after the other, and starts a batch when the
one before it is in both tables. Let n be the last batch whose offsets are in the table.

1. All batches before n are in both tables: the offsets of n replace the offsets of n - 1 only after n has begun.
2. No batch after n is in a table: a batch adds rows after, or together with, its offsets.
3. So only n is in doubt. Each table has the marks of its batches (marks.py), and shows whether it contains n.

A query without a committed batch therefore begins with n again: the same range under the same mark, so each of the two
tables takes the batch if it lacks it. If both contain n, the query begins after n, and the source of n (a backup, which
may be deleted) is not needed. A query that is killed before its first batch is committed repeats all of this: its first
batch has the end of n, and is recognized by it; or its range follows n, and it is n + 1 with a mark of its own.

A side table gets the mark of a batch only if the batch has bad rows, so for some batches of topics it remains in doubt;
they are read again. Batches of a backfill always leave a mark.

The offsets survive compaction and the expiry of snapshots. Delta keeps them as long as its log:
`delta.logRetentionDuration`, by default 30 days after the next batch.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.clients.spark.tables.marks import Mark

OFFSETS: Final = "skylark.offsets."
NAME_DIGITS: Final = 16


_UNREADABLE: Final = (ValueError, RecursionError)
_ADVICE: Final = (
    "the offsets of the last batch are lost. Restore the checkpoint, or write to a new table with a new checkpoint"
)


class DamagedOffsets(Exception):
    """Offsets in a table that cannot be read; the text names the remedy."""


class BatchOffsets(msgspec.Struct, frozen=True):
    """The range of a batch: offsets as in Spark's checkpoint, whose path is `checkpoint`.

    An empty `start` is the first offset of the source.
    """

    checkpoint: str
    mark: Mark
    start: dict[str, Any]
    end: dict[str, Any]

    def text(self) -> str:
        """Return the offsets as JSON."""
        return msgspec.json.encode(self).decode()

    def properties(self) -> dict[str, str]:
        """Return the table property."""
        return {property_of(self.checkpoint): self.text()}


def property_of(checkpoint: str) -> str:
    """Return the name of a checkpoint's property: a hash, because Spark hides the values of names such as `token`."""
    return OFFSETS + hashlib.sha256(checkpoint.encode()).hexdigest()[:NAME_DIGITS]


def offsets_in(properties: Mapping[str, str], checkpoint: str) -> BatchOffsets | None:
    """Return the offsets of a checkpoint's last batch; None: none. Raises DamagedOffsets."""
    name = property_of(checkpoint)
    value = properties.get(name)
    if value is None:
        return None
    try:
        return _checked(msgspec.json.decode(value, type=BatchOffsets))
    except _UNREADABLE as error:
        raise DamagedOffsets(f"the table property {name} is damaged ({error}): {_ADVICE}") from error


def offsets_from(metadata: str | None, checkpoint: str) -> BatchOffsets | None:
    """Return the offsets in the metadata of a commit; None if those are of another checkpoint or another writer.

    Raises DamagedOffsets.
    """
    try:
        found = msgspec.json.decode(metadata or "", type=BatchOffsets)
    except _UNREADABLE:
        return None
    if found.checkpoint != checkpoint:
        return None
    try:
        return _checked(found)
    except ValueError as error:
        raise DamagedOffsets(f"the userMetadata of a commit is damaged ({error}): {_ADVICE}") from error


def _checked(offsets: BatchOffsets) -> BatchOffsets:
    """Return the offsets. Raises ValueError if they do not have the shape of a checkpoint's offsets."""
    for offset in (offsets.start, offsets.end):
        try:
            Offset.of(offset)
        except ValueError as shape:
            raise ValueError(f"an offset is {shape}") from shape
    return offsets
