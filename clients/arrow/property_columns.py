"""Properties of many messages at once: single properties by name, or all of them as a column of maps.

The property strings of all messages are consecutive in one array. The positions of 0x02 and the ends of the messages
delimit the entries (`name 0x01 value 0x02`). The rules are the same as in protocol.message.decode_properties: the name
ends at the entry's first 0x01, an entry with an empty name or value is ignored, and the last of several entries with
one name counts.

Invalid UTF-8 is replaced by U+FFFD first. After that, each separator lies between characters, and values are slices.

Source: docs/reference/wire.md, "Properties".
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.slices import array_of, binaries, booleans, content, numbers, take_slices
from skylarkmq.protocol.message import ENTRY_END, NAME_END

_NAME_END: Final = ord(NAME_END)
_ENTRY_END: Final = ord(ENTRY_END)
_FIRST_BYTES: Final = 4  # bytes of a name that are compared as one number
_FEW_NAMES: Final = 32


class PropertyColumns:
    """`strings`: the property strings as stored, a binary array that begins at offset 0 and has no nulls."""

    def __init__(self, strings: pa.Array) -> None:
        strings = with_valid_utf8(strings)
        self._buffer = strings.buffers()[2] or pa.py_buffer(b"")
        self._raw, offsets = content(strings)
        self._begins, self._row_ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        self._find_entries()

    def _find_entries(self) -> None:
        """Set `entries` and `entry_ends` (without the 0x02, in order) and `rows`, the message of each entry."""
        closed = np.flatnonzero(self._raw == _ENTRY_END)
        bounds = np.concatenate((self._row_ends, closed))
        order = np.argsort(bounds, kind="stable")  # the end of a row sorts before a 0x02 after it
        bounds = bounds[order]
        is_row_end = order < len(self._row_ends)
        begins = np.empty_like(bounds)
        begins[:1] = 0
        begins[1:] = bounds[:-1] + ~is_row_end[:-1]
        rows: Ints = np.cumsum(is_row_end) - is_row_end
        is_entry = bounds - begins >= 3  # name, 0x01, value
        self.entries, self.entry_ends, self.rows = begins[is_entry], bounds[is_entry], rows[is_entry]
        self._codes = self._first_bytes()

    def _first_bytes(self) -> NDArray[np.uint32]:
        """Return the first four bytes of each entry as a number; entries too close to the end cannot match a name."""
        if len(self._raw) < _FIRST_BYTES:
            return np.zeros(len(self.entries), np.uint32)
        numbers = np.ndarray((len(self._raw) - _FIRST_BYTES + 1,), "<u4", self._raw, strides=(1,))
        return numbers[np.minimum(self.entries, len(numbers) - 1)]

    def values(self, name: bytes) -> pa.Array:
        """Return the value of the named property (four bytes or longer) of each message; null if a message has none."""
        found = np.flatnonzero(self._codes == int.from_bytes(name[:_FIRST_BYTES], "little"))
        value_at = len(name) + 1
        found = found[self.entry_ends[found] - self.entries[found] > value_at]
        for at, byte in enumerate(name[_FIRST_BYTES:] + NAME_END.encode(), _FIRST_BYTES):
            found = found[self._raw[self.entries[found] + at] == byte]
        begins, ends = self._begins.copy(), self._begins.copy()
        begins[self.rows[found]] = self.entries[found] + value_at  # of several in one message, the last one remains
        ends[self.rows[found]] = self.entry_ends[found]
        is_there = np.zeros(len(begins), np.bool_)
        is_there[self.rows[found]] = True
        return take_slices(self._buffer, begins, ends, pa.string(), is_there)

    def maps(self, kind: pa.DataType) -> pa.Array:
        """Return all properties of each message as a map of that type; empty if there are none."""
        name_ends = self._name_ends()
        is_entry = (name_ends > self.entries) & (name_ends < self.entry_ends - 1)
        begins, ends, rows = self.entries[is_entry], self.entry_ends[is_entry], self.rows[is_entry]
        name_ends = name_ends[is_entry]
        names = take_slices(self._buffer, begins, name_ends, pa.string())
        values = take_slices(self._buffer, name_ends + 1, ends, pa.string())
        is_last = _is_last_of_its_name(names, rows)
        if not is_last.all():
            kept = booleans(is_last)
            names, values, rows = names.filter(kept), values.filter(kept), rows[is_last]
        offsets = np.searchsorted(rows, np.arange(len(self._begins) + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(array_of(offsets), names, values, type=kind)

    def _name_ends(self) -> Ints:
        """Return the position of the first 0x01 of each entry, or the entry's end."""
        separators = np.append(np.flatnonzero(self._raw == _NAME_END), len(self._raw))
        ends: Ints = np.minimum(separators[np.searchsorted(separators, self.entries)], self.entry_ends)
        return ends


def with_valid_utf8(strings: pa.Array) -> pa.Array:
    """Return the same strings with invalid UTF-8 replaced. Most need only a check of their highest bits."""
    raw, offsets = content(strings)
    if not (raw & 0x80).any():
        return strings
    first_bytes = raw[offsets[:-1][offsets[:-1] < offsets[1:]]]
    if not ((first_bytes & 0xC0) == 0x80).any() and _is_utf8(raw):  # no character crosses the end of a string
        return strings
    return binaries([text.decode("utf-8", "replace").encode() for text in strings.to_pylist()])


def _is_utf8(raw: NDArray[np.uint8]) -> bool:
    try:
        str(raw.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_last_of_its_name(names: pa.Array, rows: Ints) -> NDArray[np.bool_]:
    """Return whether no later entry of the same row has the same name."""
    encoded = names.dictionary_encode()
    codes = numbers(encoded.indices).astype(np.int64)
    if not len(rows) or _all_differ(codes, rows, len(encoded.dictionary)):
        return np.ones(len(rows), np.bool_)
    backwards = (rows * len(encoded.dictionary) + codes)[::-1]
    _, last = np.unique(backwards, return_index=True)
    is_last = np.zeros(len(rows), np.bool_)
    is_last[len(rows) - 1 - last] = True
    return is_last


def _all_differ(codes: Ints, rows: Ints, distinct: int) -> bool:
    """Return True if no row has a code twice: the sum of its powers of two then equals their union. False: unknown."""
    if distinct > _FEW_NAMES:
        return False
    bits = np.left_shift(1, codes)
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    return bool((np.add.reduceat(bits, firsts) == np.bitwise_or.reduceat(bits, firsts)).all())
