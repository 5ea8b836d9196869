"""Checks of records: lengths, position, the body's checksum, and the whole record's checksum if it has one.

Source: docs/reference/disk.md, "Checking one record", "Whole-record checksum".
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout, ends_of, integers
from skylarkmq.protocol.crc32 import slice_crcs
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import Buffer, Record, parse
from skylarkmq.protocol.record_checksum import NAME, SIZE, has_wrong_checksum

_NAME: Final = int.from_bytes(NAME, "big")


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
    found = slice_crcs(layout.buffer, layout.body_begins, layout.body_ends)
    is_valid: NDArray[np.bool_] = (found == layout.body_crcs) | (layout.body_begins == layout.body_ends)
    return is_valid


def records_match(layout: RecordLayout) -> NDArray[np.bool_]:
    """Return whether each record matches its checksums, of the body and of the whole record."""
    return bodies_match(layout) & ~_broken(layout)


def seals_match(view: memoryview, starts: Ints) -> NDArray[np.bool_]:
    """Return whether each record matches the checksum of the whole record, if it has one. `starts`: whole records."""
    is_valid = np.ones(len(starts), np.bool_)
    sealed = np.flatnonzero(_ends_with_seal(view, ends_of(view, starts)))
    if len(sealed):
        is_valid[sealed] = ~_broken(RecordLayout(view, starts[sealed]))
    return is_valid


def _broken(layout: RecordLayout) -> NDArray[np.bool_]:
    """Return whether a record ends with a whole-record checksum that does not match."""
    is_sealed = _ends_with_seal(layout.buffer, layout.ends) & (layout.ends - SIZE >= layout.property_begins)
    is_broken_ = np.zeros(len(layout), np.bool_)
    for row in np.flatnonzero(is_sealed).tolist():
        record = parse(memoryview(layout.buffer), int(layout.starts[row]), check_body=False)
        is_broken_[row] = not isinstance(record, Record) or has_wrong_checksum(record)
    return is_broken_


def _ends_with_seal(buffer: Buffer, ends: Ints) -> NDArray[np.bool_]:
    """Return whether the bytes before each end begin like a whole-record checksum."""
    is_sealed: NDArray[np.bool_] = integers(buffer, len(NAME))[ends - SIZE] == _NAME
    return is_sealed
