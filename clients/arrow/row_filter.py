"""A filter expression, applied to records before their rows are built.

The filter reads only the columns that its expression refers to. The other columns, such as bodies, are then built for
the matching records alone. An expression does not list its fields, so they are found by evaluating it over an empty
table without one column at a time.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skylarkmq.clients.arrow.columns import OversizedBatch, record_batch
from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.schema import TYPES, Columns
from skylarkmq.protocol.record import Buffer

_ROW = "__row"


class RowFilter:
    """Selects the records for which `expression` is true. Raises ValueError if no column fits the expression."""

    def __init__(self, expression: pc.Expression, *, decode: bool) -> None:
        self._expression = expression
        self._columns = fields_of(expression, decode=decode)

    def __repr__(self) -> str:
        return f"<RowFilter {self._expression}>"

    def matching(self, buffer: Buffer, starts: Ints, broker_name: str | None) -> Ints:
        """Return the starts whose rows match. Raises ProtocolError."""
        try:
            batch = record_batch(buffer, starts, broker_name, self._columns)
        except OversizedBatch:
            half = len(starts) // 2
            parts = (self.matching(buffer, part, broker_name) for part in (starts[:half], starts[half:]))
            return np.concatenate(list(parts))
        table = pa.Table.from_batches([batch]).append_column(_ROW, pa.array(np.arange(len(starts))))
        rows = table.filter(self._expression).column(_ROW).to_numpy()
        return starts if len(rows) == len(starts) else starts[np.sort(rows)]  # threads may reorder them


def fields_of(expression: pc.Expression, *, decode: bool) -> Columns:
    """Return the columns that an expression refers to. Raises ValueError for an unknown column or a type error."""
    every = Columns(tuple(TYPES), decode)
    empty = every.schema.empty_table()
    try:
        empty.filter(expression)
    except pa.ArrowException as error:
        raise ValueError(f"filter {expression} does not fit the columns {[*TYPES]}: {error}") from None
    used = tuple(name for name in TYPES if not _is_complete_without(empty, name, expression))
    if not used:
        raise ValueError(f"filter {expression} refers to no column: it must compare one of {[*TYPES]}")
    return Columns(used, decode)


def _is_complete_without(empty: pa.Table, name: str, expression: pc.Expression) -> bool:
    try:
        empty.drop_columns([name]).filter(expression)
    except pa.ArrowInvalid:
        return False
    return True
