"""SQL conditions over record batches, evaluated by DuckDB: `pip install 'skylarkmq[replay]'` installs it.

DuckDB reads only the columns that the condition names, without a copy, and returns one boolean a row. It has one
thread, so rows keep their order.
"""

import duckdb
import numpy as np
import pyarrow as pa

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.replay.errors import ReplayFailed

MACRO = (
    "CREATE MACRO property(properties, name) AS "
    "nullif(regexp_extract(chr(2) || properties, chr(2) || regexp_escape(name) || chr(1) || "
    "'([^' || chr(2) || ']*)', 1), '')"
)


class Condition:
    """A condition. ValueError with DuckDB's text if it is not one over the columns of an archive."""

    def __init__(self, where: str) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(MACRO)
        self._query = f"SELECT coalesce(({where}), false) AS selected FROM messages"
        try:
            self._evaluate(pa.RecordBatch.from_pylist([], ARCHIVE_SCHEMA))
        except duckdb.Error as error:
            raise ValueError(f"the condition is not SQL over the columns of an archive: {error}") from None

    def __repr__(self) -> str:
        return f"<Condition {self._query}>"

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return for each row whether the condition holds; null counts as false. Raises ReplayFailed."""
        try:
            return self._evaluate(batch)
        except duckdb.Error as error:
            raise ReplayFailed(f"the condition fails on a message: {error}") from error

    def _evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        self._database.register("messages", pa.Table.from_batches([batch]))
        found = self._database.execute(self._query).fetchnumpy()["selected"]
        return pa.array(np.asarray(found, np.bool_))
