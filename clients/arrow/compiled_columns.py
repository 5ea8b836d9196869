"""The columns of records in the common layout, built by the compiled module protocol/compiled/columns.py.

One pass finds the parts of all records, another one copies those that are wanted. That takes a fifth of the time of
NumPy and Arrow (clients/arrow/columns.py), which build all other batches, and every batch without the compiled module.

The columns here are *stored* columns: the parts of a record before a batch's columns are derived from them. Hosts are
bytes, `msgId` is null without a unique id, and `properties` is the string of the record.
"""

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.schema import BODY, TYPES
from skylarkmq.clients.arrow.slices import binaries
from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import Buffer

NUMBERS: Final = (
    "queueId", "flag", "reconsumeTimes", "sysFlag", "bodyCrc",
    "queueOffset", "physicalOffset", "preparedTransactionOffset", "storeTimestamp", "bornTimestamp",
)  # fmt: skip
TEXTS: Final = ("body", "topic", "tags", "keys", "msgId", "properties", "bornHost", "storeHost")
STORED_TYPES: Final = {name: TYPES[name] for name in (*NUMBERS, *TEXTS)} | {
    "properties": pa.binary(),
    "bornHost": pa.binary(),
    "storeHost": pa.binary(),
}
_BITS: Final = {name: 1 << number for number, name in enumerate((*NUMBERS, *TEXTS))}
_COMPRESSED: Final = 1 << len(_BITS)  # compressed bodies are in the common layout
_ANY_ORDER: Final = _COMPRESSED << 1

_compiled: Final = compiled.load("columns")


def common_columns(
    buffer: Buffer,
    starts: Ints,
    names: Collection[str] = tuple(_BITS),
    *,
    decode: bool = True,
    encoded: Collection[str] = (),
) -> dict[str, pa.Array] | None:
    """Return these columns by name; None: a record is damaged, or not in the common layout.

    With `decode`, compressed bodies are not in the common layout. The columns of `encoded` (texts) are dictionary
    arrays. The result keeps no reference to the buffer.
    """
    wanted = _bits(names)
    if not decode or BODY not in names:
        wanted |= _COMPRESSED
    return _columns(buffer, starts, wanted, encoded, ())


def unordered_columns(
    buffer: Buffer, starts: Ints, names: Collection[str], encoded: Collection[str], viewed: Collection[str]
) -> dict[str, pa.Array] | None:
    """Return the same for records in any order, with bodies as they are stored.

    The columns of `viewed` (bodies) are views: valid as long as the buffer does not change.
    """
    return _columns(buffer, starts, _bits(names) | _COMPRESSED | _ANY_ORDER, encoded, viewed)


def _bits(names: Collection[str]) -> int:
    return sum(_BITS[name] for name in names)


def _columns(
    buffer: Buffer, starts: Ints, wanted: int, encoded: Collection[str], viewed: Collection[str]
) -> dict[str, pa.Array] | None:
    if _compiled is None:
        return None
    forms = _bits(encoded), _bits(viewed)
    found = _compiled.columns(buffer, np.ascontiguousarray(starts, np.int64), wanted, pa.allocate_buffer, *forms)
    if found is None:
        return None
    numbers, texts = found
    columns = {
        name: _column(STORED_TYPES[name], len(starts), None, data)
        for name, data in zip(NUMBERS, numbers, strict=True)
        if data is not None
    }
    for name, parts in zip(TEXTS, texts, strict=True):
        if parts is None:
            continue
        if name in viewed:
            columns[name] = _column(pa.binary_view(), len(starts), *parts, pa.py_buffer(buffer))
        elif name in encoded:
            columns[name] = _encoded(STORED_TYPES[name], len(starts), *parts)
        else:
            columns[name] = _column(STORED_TYPES[name], len(starts), *parts)
    return columns


def _column(kind: pa.DataType, count: int, *buffers: bytes | pa.Buffer | None) -> pa.Array:
    made = [pa.py_buffer(data) if isinstance(data, bytes) else data for data in buffers]
    return pa.Array.from_buffers(kind, count, made)


def _encoded(kind: pa.DataType, count: int, validity: bytes | None, codes: bytes, values: Any) -> pa.Array:
    """Return a dictionary array; `codes` and `values` may also be the offsets and bytes of a text for each row."""
    if not isinstance(values, list):
        return _column(kind, count, validity, codes, values).dictionary_encode()
    return pa.DictionaryArray.from_arrays(_column(pa.int32(), count, validity, codes), binaries(values).view(kind))
