"""A log whose records carry a checksum over all of themselves (`enabledAppendPropCRC`).

Only the body of a record has a checksum by itself; with this one every flipped bit is found, at the price of reading
each record once more while it is put. Everything else about the log stays as it is: the room for the checksum is part
of the properties before the record's size is known, and is filled in behind the put.

Source: docs/formats.md, "Whole-record checksum".
"""

from collections.abc import Sequence

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.append_columns import AppendColumns
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.record_batch import PARTS, PlainRecordBatch
from skylarkmq.protocol.record_checksum import fill_checksum, with_checksum_space


class SealedRecordBatch(PlainRecordBatch):
    """A batch that seals what it puts."""

    def put_run(self, appends: Sequence[Append], is_checked: bool = False) -> None:
        """As there; the appends' properties gain the checksum's room."""
        for append in appends:
            append.properties = with_checksum_space(append.properties)
            super().put_run((append,), is_checked)
            if append.status is PutStatus.PENDING:
                self._parts[-1] = fill_checksum(self._parts[-PARTS:])


class SealedCommitLog(CommitLog):
    """A commit log that seals what it puts."""

    def _new_records(self) -> PlainRecordBatch:
        return SealedRecordBatch(self._queues, self._config.store_host, self._put_unusual)

    def put_all(self, appends: Sequence[Append]) -> None:
        """As there; room is made first, so that the batch is measured with it."""
        for append in appends:
            append.properties = with_checksum_space(append.properties)
        super().put_all(appends)

    put_alike = put_all

    def put_columns(self, columns: AppendColumns) -> bool:  # noqa: ARG002 (none are taken)
        """Never: each message is sealed by itself."""
        return False
