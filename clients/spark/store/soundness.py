"""Whether records are what was written: lengths, place, the body's checksum, and the whole record's if it has one.

Source: docs/formats.md, "Checking one record", "Whole-record checksum".
"""

from typing import Final

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from skylarkmq.clients.spark.arrow.record_layout import Ints, Places
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import CRC_MASK, Record, parse
from skylarkmq.protocol.record_checksum import NAME, SIZE, has_wrong_checksum

_BODY_CRC_AT: Final = 8
_NAME: Final = np.frombuffer(NAME + b"\x01", np.uint8)


def count_sound(view: memoryview, starts: Ints, base: int) -> int:
    """How many records are sound before the first that is not. `base`: the log's byte that `view` begins with."""
    try:
        places = Places(view, starts)
    except ProtocolError:
        low, high = 0, len(starts) - 1  # some are no records: find the first
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _are_records(view, starts[:middle]) else (low, middle - 1)
        places = Places(view, starts[:low])
    is_sound = (places.physical_offsets == base + places.starts) & bodies_are_sound(places) & ~_broken(places)
    return len(is_sound) if is_sound.all() else int(is_sound.argmin())


def _are_records(view: memoryview, starts: Ints) -> bool:
    try:
        Places(view, starts)
    except ProtocolError:
        return False
    return True


def bodies_are_sound(places: Places) -> NDArray[np.bool_]:
    """Whether each body has the checksum that its record says; one of nothing always has."""
    view = memoryview(places.buffer)
    said = places.int32(_BODY_CRC_AT)
    bounds = zip(places.body_begins.tolist(), places.body_ends.tolist(), strict=True)
    found = np.array([crc32(view[begin:end]) & CRC_MASK for begin, end in bounds], np.int64)
    is_sound: NDArray[np.bool_] = (found == said) | (places.body_begins == places.body_ends)
    return is_sound


def are_sound(places: Places) -> NDArray[np.bool_]:
    """Whether each record's checksums are right, of body and whole."""
    return bodies_are_sound(places) & ~_broken(places)


def _broken(places: Places) -> NDArray[np.bool_]:
    """Whether a record ends in a checksum over itself that is not its own."""
    raw = np.frombuffer(places.buffer, np.uint8)
    begins = places.ends - SIZE
    is_broken_ = np.zeros(len(places), np.bool_)
    sealed = np.flatnonzero(begins >= places.property_begins)
    names = raw[begins[sealed, None] + np.arange(len(_NAME))]
    for row in sealed[(names == _NAME).all(axis=1)].tolist():
        record = parse(memoryview(places.buffer), int(places.starts[row]), check_body=False)
        is_broken_[row] = not isinstance(record, Record) or has_wrong_checksum(record)
    return is_broken_
