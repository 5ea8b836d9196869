"""The check of one record: one definition for recovery and for the dispatch of a follower.

A record is whole if its magic is valid, its parts add up to its size, it lies at the physical offset that it states,
and its body matches its CRC (with `forceVerifyPropCRC`, the record as well). A record whose topic is not valid UTF-8 is
whole too; it has no queue.

A record of a follower may lack bytes and still pass: its body is there, and the rest of its properties is zeros. A
follower that kept it would differ from the node that it follows. `lacks_bytes` finds it, provided that the disk writes
each sector as a whole. Whole records may contain such zeros too, so the test is for bytes that perhaps were not synced.

Source: docs/reference/disk.md, "Checking one record", "Followers".
"""

from typing import Final, TypeAlias

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.protocol.record import Blank, Damaged, End, Record, UnreadableTopic, parse
from skylarkmq.protocol.record_checksum import has_valid_checksum

Checked: TypeAlias = Record | Blank | End | Damaged

_SECTOR_BYTES: Final = 512


def lacks_bytes(record: Record) -> bool:
    """Return whether topic or properties of a record in a segment end with zeros, at its end or at the end of a sector.

    The log had zeros there before the record was written. The head and the body need no such test: with zeros in their
    place, the parts of the record do not add up to its size, or the body does not match its CRC.
    """
    begin, end = record.properties_at, record.position + record.size
    sectors = range(begin + _SECTOR_BYTES - begin % _SECTOR_BYTES, end, _SECTOR_BYTES)
    return "\0" in record.topic or (begin < end and any(not record.source[at - 1] for at in (*sectors, end)))


class RecordCheck:
    """Reads records of a log. `check_body` checks the CRC of bodies, `check_record` the checksum of records."""

    def __init__(self, *, check_body: bool = True, check_record: bool = False) -> None:
        self._check_body = check_body and not check_record
        self._check_record = check_record

    @property
    def checks_records(self) -> bool:
        """Whether the CRC of records is checked."""
        return self._check_record

    @classmethod
    def of(cls, config: StoreConfig) -> "RecordCheck":
        """Return the check with the settings of a store."""
        is_checked = config.check_crc_on_recover
        return cls(check_body=is_checked, check_record=is_checked and config.force_verify_prop_crc)

    def at(self, segment: MappedFile, position: int) -> Checked:
        """Return the whole record or the blank at byte `position` of a segment, or the reason why there is none."""
        found = parse(segment.view, position, check_body=self._check_body)
        if isinstance(found, UnreadableTopic) and found.record is not None:
            found = found.record
        if not isinstance(found, Record):
            return found
        if self._check_record and not has_valid_checksum(found):
            return Damaged("record checksum")
        offset = segment.start + position
        if found.physical_offset != offset:
            return Damaged(f"record with offset {found.physical_offset} found at {offset}")
        return found

    def __repr__(self) -> str:
        return f"<RecordCheck body={self._check_body} record={self._check_record}>"
