"""The columns of records in the common layout, built by the compiled module protocol/compiled/columns.py.

One pass finds the parts of all records, another one copies those that are wanted. That takes a fifth of the time of
NumPy and Arrow (clients/arrow/columns.py), which build all other batches, and every batch without the compiled module.

The columns here are *stored* columns: the parts of a record before a batch's columns are derived from them. Hosts are
bytes, `msgId` is null without a unique id, and `properties` is the string of the record.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa

from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.schema import BODY, TYPES
from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import Buffer

NUMBERS: Final = (
    *("queueId", "flag", "reconsumeTimes", "sysFlag", "bodyCrc"),
    *("queueOffset", "physicalOffset", "preparedTransactionOffset", "storeTimestamp", "bornTimestamp"),
)
TEXTS: Final = ("body", "topic", "tags", "keys", "msgId", "properties", "bornHost", "storeHost")
STORED_TYPES: Final = {name: TYPES[name] for name in (*NUMBERS, *TEXTS)} | {
    "properties": pa.binary(),
    "bornHost": pa.binary(),
    "storeHost": pa.binary(),
}
_BITS: Final = {name: 1 << number for number, name in enumerate((*NUMBERS, *TEXTS))}
_COMPRESSED: Final = 1 << len(_BITS)  # compressed bodies are in the common layout

_compiled: Final = compiled.load("columns")


def common_columns(
    buffer: Buffer, starts: Ints, names: Collection[str] = tuple(_BITS), *, decode: bool = True
) -> dict[str, pa.Array] | None:
    """Return these columns by name; None: a record is damaged, or not in the common layout.

    With `decode`, compressed bodies are not in the common layout. The result keeps no reference to the buffer.
    """
    if _compiled is None:
        return None
    wanted = sum(_BITS[name] for name in names)
    if not decode or BODY not in names:
        wanted |= _COMPRESSED
    found = _compiled.columns(buffer, np.ascontiguousarray(starts, np.int64), wanted, pa.allocate_buffer)
    if found is None:
        return None
    numbers, texts = found
    columns = {
        name: _column(name, len(starts), None, data)
        for name, data in zip(NUMBERS, numbers, strict=True)
        if data is not None
    }
    for name, buffers in zip(TEXTS, texts, strict=True):
        if buffers is not None:
            columns[name] = _column(name, len(starts), *buffers)
    return columns


def _column(name: str, count: int, *buffers: bytes | pa.Buffer | None) -> pa.Array:
    made = [pa.py_buffer(data) if isinstance(data, bytes) else data for data in buffers]
    return pa.Array.from_buffers(STORED_TYPES[name], count, made)
