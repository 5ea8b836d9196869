"""Checks of records: lengths, position, the body's checksum, and the whole record's checksum if it has one.

Source: docs/formats.md, "Checking one record", "Whole-record checksum".
"""

from typing import Final

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import CRC_MASK, Record, parse
from skylarkmq.protocol.record_checksum import NAME, SIZE, has_wrong_checksum

_NAME: Final = np.frombuffer(NAME + b"\x01", np.uint8)


def count_valid(view: memoryview, starts: Ints, base: int) -> int:
    """Return the number of valid records before the first invalid one.

    `base`: the log offset of the first byte of `view`.
    """
    try:
        layout = RecordLayout(view, starts)
    except ProtocolError:
        low, high = 0, len(starts) - 1  # bisect for the first position that is not a record
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _are_records(view, starts[:middle]) else (low, middle - 1)
        layout = RecordLayout(view, starts[:low])
    is_valid = (layout.physical_offsets == base + layout.starts) & bodies_match(layout) & ~_broken(layout)
    return len(is_valid) if is_valid.all() else int(is_valid.argmin())


def _are_records(view: memoryview, starts: Ints) -> bool:
    try:
        RecordLayout(view, starts)
    except ProtocolError:
        return False
    return True


def bodies_match(layout: RecordLayout) -> NDArray[np.bool_]:
    """Return whether each body matches the checksum in its record; an empty body always matches."""
    view = memoryview(layout.buffer)
    stated = layout.body_crcs
    bounds = zip(layout.body_begins.tolist(), layout.body_ends.tolist(), strict=True)
    found = np.array([crc32(view[begin:end]) & CRC_MASK for begin, end in bounds], np.int64)
    is_valid: NDArray[np.bool_] = (found == stated) | (layout.body_begins == layout.body_ends)
    return is_valid


def records_match(layout: RecordLayout) -> NDArray[np.bool_]:
    """Return whether each record matches its checksums, of the body and of the whole record."""
    return bodies_match(layout) & ~_broken(layout)


def seals_match(layout: RecordLayout) -> NDArray[np.bool_]:
    """Return whether each record matches the checksum of the whole record, if it has one."""
    return ~_broken(layout)


def _broken(layout: RecordLayout) -> NDArray[np.bool_]:
    """Return whether a record ends with a whole-record checksum that does not match."""
    raw = np.frombuffer(layout.buffer, np.uint8)
    begins = layout.ends - SIZE
    is_broken_ = np.zeros(len(layout), np.bool_)
    sealed = np.flatnonzero(begins >= layout.property_begins)
    names = raw[begins[sealed, None] + np.arange(len(_NAME))]
    for row in sealed[(names == _NAME).all(axis=1)].tolist():
        record = parse(memoryview(layout.buffer), int(layout.starts[row]), check_body=False)
        is_broken_[row] = not isinstance(record, Record) or has_wrong_checksum(record)
    return is_broken_
