"""`scan_topic`: the messages of topics, pulled from their brokers, as a stream of record batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from skylarkmq.clients.arrow.arguments import columns_of, milliseconds_of, names_of
from skylarkmq.clients.arrow.batch_reader import batch_reader
from skylarkmq.clients.arrow.row_filter import RowFilter
from skylarkmq.clients.arrow.topic.bounds import batch_ranges
from skylarkmq.clients.arrow.topic.cluster import Cluster
from skylarkmq.clients.arrow.topic.cluster_retries import with_cluster_retries
from skylarkmq.clients.arrow.topic.options import TopicOptions
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.arrow.topic.range_reader import RangeReader, Work
from skylarkmq.clients.arrow.topic.splitting import tasks_of
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.consuming.group_member import Sql92
from skylarkmq.protocol.bodies.heartbeat import SQL92, TAG
from skylarkmq.protocol.bodies.message_queue import MessageQueue

Bound: TypeAlias = datetime | int | Mapping[MessageQueue, int]
"""A time, or the offset of each queue."""


def scan_topic(
    namesrv: str,
    topics: str | Iterable[str],
    *,
    start: Literal["earliest", "latest"] | Bound = "earliest",
    end: Literal["latest"] | Bound = "latest",
    columns: Iterable[str] | None = None,
    filter: pc.Expression | None = None,  # noqa: A002 - the name in pyarrow.dataset
    decode: bool = True,
    subscription: str | Sql92 = "*",
    group: str = "skylark-arrow",
    credentials: Credentials | None = None,
    tls: TlsSettings | None = None,
    fail_on_data_loss: bool = True,
    pull_batch: int = 32,
    pull_timeout_s: float = 3.0,
    broker_timeout_s: float = 60.0,
) -> pa.RecordBatchReader:
    """Return the messages of topics between two bounds, which the call fixes; no offsets are committed.

    `namesrv`: `host:port`, several separated by semicolons. `start` and `end` (exclusive): a time (datetime with a time
    zone, or ms since 1970: the first message stored then or later), or offsets by queue; queues without an offset begin
    at their first message and end at their last one. `subscription`: tags `a || b`, or an Sql92, as in a consumer; the
    broker applies it. `filter`, `columns` and `decode` are the same as for `scan_store`.

    The reader pulls queue after queue, broker after broker, with many pulls in flight. It waits for a broker that is
    unavailable for up to `broker_timeout_s`. If messages are deleted before they were read, the stream fails, or, with
    `fail_on_data_loss=False`, logs the range and continues after it.

    Raises Unreachable or ClientError if the cluster does not respond in time, InvalidBounds for offsets of queues that
    do not exist, and ValueError for wrong arguments. After that, errors are OSError.
    """
    expression, kind = (subscription.expression, SQL92) if isinstance(subscription, Sql92) else (subscription, TAG)
    options = TopicOptions(
        name_server=namesrv,
        credentials=credentials,
        tls=tls,
        subscribe=names_of("topics", topics),
        when_no_later_message="latest",
        fail_on_data_loss=fail_on_data_loss,
        columns=columns_of(columns, decode=decode),
        expression=expression,
        expression_type=kind,
        group_prefix=group,
        pull_batch=pull_batch,
        pull_timeout_ms=int(pull_timeout_s * 1000),
        broker_timeout_ms=int(broker_timeout_s * 1000),
        **_start_of(start),
        **_end_of(end),
    )
    row_filter = None if filter is None else RowFilter(filter, decode=decode)
    return batch_reader(options.columns.schema, _batches(options, _works(options), row_filter))


class _Start(TypedDict, total=False):
    starting_offsets: str | Positions
    starting_timestamp: int | None


class _End(TypedDict, total=False):
    ending_offsets: str | Positions
    ending_timestamp: int | None


def _start_of(start: str | Bound) -> _Start:
    if isinstance(start, str):
        if start not in {"earliest", "latest"}:
            raise ValueError(f"start must be earliest, latest, a time, or offsets by queue, not {start!r}")
        return {"starting_offsets": start}
    if isinstance(start, Mapping):
        return {"starting_offsets": dict(start)}
    return {"starting_timestamp": milliseconds_of("start", start)}


def _end_of(end: str | Bound) -> _End:
    if isinstance(end, str):
        if end != "latest":
            raise ValueError(f"end must be latest, a time, or offsets by queue, not {end!r}")
        return {"ending_offsets": end}
    if isinstance(end, Mapping):
        return {"ending_offsets": dict(end)}
    return {"ending_timestamp": milliseconds_of("end", end)}


def _works(options: TopicOptions) -> Sequence[Work]:
    """Return the ranges of each broker, with its address."""
    cluster = Cluster(options)
    try:
        ranges = with_cluster_retries(options.broker_timeout_ms, lambda: batch_ranges(cluster, options))
        names = {one.queue.broker_name for one in ranges}
        addresses = with_cluster_retries(options.broker_timeout_ms, lambda: cluster.addresses(names))
    finally:
        cluster.close()
    by_broker = [(task[0].queue.broker_name, task) for task in tasks_of(ranges, most=1)]
    return [Work(name, addresses.get(name), task) for name, task in by_broker]


def _batches(options: TopicOptions, works: Sequence[Work], row_filter: RowFilter | None) -> Iterator[pa.RecordBatch]:
    for work in works:
        yield from RangeReader(options, work, row_filter, keep_connection=False).batches()
