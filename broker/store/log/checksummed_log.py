"""A log whose records carry a checksum over the whole record (`enabledAppendPropCRC`).

Without it only the body of a record has a checksum. With it every flipped bit is detected; the price is one more pass
over each record when it is put. The rest of the log is unchanged: space for the checksum is added to the properties
before the record's size is computed, and the checksum is filled in after the put.

Source: docs/reference/disk.md, "Whole-record checksum".
"""

from collections.abc import Sequence

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.record_batch import PARTS, PythonRecordBatch
from skylarkmq.protocol.record_checksum import fill_checksum, with_checksum_space


class ChecksummedRecordBatch(PythonRecordBatch):
    """A record batch that adds the checksum to each record."""

    def put_run(self, appends: Sequence[Append], is_checked: bool = False) -> None:
        """Add messages in order. Their properties gain the space for the checksum."""
        for append in appends:
            append.properties = with_checksum_space(append.properties)
            super().put_run((append,), is_checked)
            if append.status is PutStatus.PENDING:
                self._parts[-1] = fill_checksum(self._parts[-PARTS:])


class ChecksummedCommitLog(CommitLog):
    """A commit log that adds the checksum to each record."""

    def _new_records(self) -> PythonRecordBatch:
        return ChecksummedRecordBatch(self._queues, self._config.store_host, self._put_unusual)

    def put_all(self, appends: Sequence[Append]) -> None:
        """Add a contiguous batch. The space for the checksums is added first, so that the batch size includes it."""
        for append in appends:
            append.properties = with_checksum_space(append.properties)
        super().put_all(appends)

    put_alike = put_all
