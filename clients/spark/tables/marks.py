"""Marks: which batches of which query an Iceberg table contains.

    snapshot summary      skylark.query-id = <query id>, skylark.batch-id = 12     in the commit that adds the rows
    table property        skylark.last-batch.<query id> = 12                       survives the expiry of snapshots

Spark runs a batch again if the driver died after the table's commit and before Spark's own. The batch then has the
same id, and the mark shows that the table contains it. The query id belongs to the checkpoint: a new checkpoint is a
new query, which writes all of its messages.

Snapshots expire, and with them their summaries. The property outlasts them: a batch of a pipeline that was stopped for
long is found, however many other commits follow. PyIceberg commits summary and property at once. With Spark's runtime
the property is a second commit; if the driver dies in between, the batch is found by its snapshot, and
`mqspark-table expire` copies such marks to properties before it expires snapshots. A mark is never removed: its size is
about 100 bytes for each query.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

QUERY_ID: Final = "skylark.query-id"
BATCH_ID: Final = "skylark.batch-id"
LAST_BATCH: Final = "skylark.last-batch."


class Mark(msgspec.Struct, frozen=True):
    """A batch of a query. Spark counts the batches of a query from 0."""

    query: str
    batch: int

    def summary(self) -> dict[str, str]:
        """Return the entries of the snapshot summary."""
        return {QUERY_ID: self.query, BATCH_ID: str(self.batch)}

    def properties(self) -> dict[str, str]:
        """Return the table property."""
        return {LAST_BATCH + self.query: str(self.batch)}


def last_batches(summaries: Iterable[Mapping[str, str]], properties: Mapping[str, str]) -> dict[str, int]:
    """Return the last batch of each query in a table: by its snapshots' summaries and its properties."""
    found: dict[str, int] = {}
    for name, value in properties.items():
        if name.startswith(LAST_BATCH):
            found[name.removeprefix(LAST_BATCH)] = int(value)
    for summary in summaries:
        query, batch = summary.get(QUERY_ID), summary.get(BATCH_ID)
        if query is not None and batch is not None:
            found[query] = max(int(batch), found.get(query, -1))
    return found


def kept_marks(summaries: Iterable[Mapping[str, str]], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the table properties to set before snapshots expire: the marks that only snapshots have."""
    last = {LAST_BATCH + query: str(batch) for query, batch in last_batches(summaries, properties).items()}
    return {name: batch for name, batch in last.items() if properties.get(name) != batch}
