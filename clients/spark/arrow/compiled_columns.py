"""The columns of plain records, by the compiled leaf (protocol/compiled/columns.py says which ones are plain).

One pass finds the parts of all records, another copies them: a fifth of what NumPy and Arrow take for the same columns
(clients.spark.arrow.columns), which are made of all other batches, and of every one where there is no leaf.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from skylarkmq.clients.spark.arrow.record_layout import Ints
from skylarkmq.clients.spark.arrow.schema import COLUMNS
from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import Buffer

NUMBERS: Final = ("queueId", "flag", "reconsumeTimes", "queueOffset", "storeTimestamp", "bornTimestamp")
TEXTS: Final = ("body", "topic", "tags", "keys", "msgId")

_leaf: Final = compiled.load("columns")


def plain_columns(buffer: Buffer, starts: Ints) -> dict[str, pa.Array] | None:
    """Those of NUMBERS and TEXTS by name (`msgId` null where the sender gave none), or None: it takes a closer look.

    Nothing of the buffer is kept.
    """
    found = None if _leaf is None else _leaf.columns(buffer, np.ascontiguousarray(starts, np.int64))
    if found is None:
        return None
    numbers, texts = found
    columns = {name: _column(name, len(starts), None, data) for name, data in zip(NUMBERS, numbers, strict=True)}
    for name, buffers in zip(TEXTS, texts, strict=True):
        columns[name] = _column(name, len(starts), *buffers)
    return columns


def _column(name: str, count: int, *buffers: bytes | None) -> pa.Array:
    _, kind = COLUMNS[name]
    return pa.Array.from_buffers(kind, count, [None if data is None else pa.py_buffer(data) for data in buffers])
