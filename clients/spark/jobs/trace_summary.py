"""Figures over the tables of traces.py: by producer, by consumer group, the slowest messages, and over time.

Percentiles are approximate (1 in 10,000 of the rank). Times in summaries are ms.
"""

from typing import Annotated, Any, Final

from msgspec import Meta
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from skylarkmq.clients.spark.jobs.chart import Line, Panel
from skylarkmq.clients.spark.jobs.messages import CLIENT_HOST
from skylarkmq.clients.spark.jobs.traces import OUTCOMES, UNFINISHED, consumptions, records, sends
from skylarkmq.clients.terminal.printed_output import Summary, utc

PERCENTILES: Final = {"p50": 0.5, "p99": 0.99}
ACCURACY: Final = 10_000
MAX_POINTS: Final = 120
STEPS_MS: Final = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000)
FAILURES: Final = OUTCOMES[1:]
SLOWEST_BY: Final = ("durationMs", "latencyMs")


class Spread(Summary, frozen=True, kw_only=True):
    """How a time is distributed; all null if it was never measured."""

    p50: Annotated[float | None, Meta(description="half of the times are at most this, ms")]
    p99: Annotated[float | None, Meta(description="99 % of the times are at most this, ms")]
    max: Annotated[float | None, Meta(description="the longest time, ms")]


class Producing(Summary, frozen=True, kw_only=True):
    """The sends of a producer group to a topic."""

    topic: Annotated[str | None, Meta(description="the topic")]
    producer_group: Annotated[str | None, Meta(description="the producer group")]
    client_host: Annotated[str | None, Meta(description="the client's address; null unless `--by-client`")]
    sends: Annotated[int, Meta(description="traced sends")]
    failed: Annotated[int, Meta(description="sends that did not succeed")]
    cost: Annotated[Spread, Meta(description="how long sends took")]


class Consuming(Summary, frozen=True, kw_only=True):
    """The handler calls of a consumer group for messages of a topic."""

    topic: Annotated[str | None, Meta(description="the topic; null if the send of the message has no trace")]
    consumer_group: Annotated[str | None, Meta(description="the consumer group")]
    client_host: Annotated[str | None, Meta(description="the client's address; null unless `--by-client`")]
    calls: Annotated[int, Meta(description="handler calls, one for each message")]
    failed: Annotated[int, Meta(description="calls that raised, timed out, returned nothing, or asked for redelivery")]
    unfinished: Annotated[int, Meta(description="calls without a record of their end")]
    redeliveries: Annotated[int, Meta(description="calls for messages that were delivered before")]
    latency: Annotated[Spread, Meta(description="from the end of the send to the start of the first call")]
    duration: Annotated[Spread, Meta(description="how long handler calls took")]


class Slow(Summary, frozen=True, kw_only=True):
    """One slow handler call."""

    msg_id: Annotated[str | None, Meta(description="the message's id")]
    topic: Annotated[str | None, Meta(description="the topic")]
    consumer_group: Annotated[str | None, Meta(description="the consumer group")]
    broker: Annotated[str | None, Meta(description="the broker that stored the message, `ip:port`")]
    begun_at: Annotated[str | None, Meta(description="the start of the call, UTC")]
    latency_ms: Annotated[int | None, Meta(description="from the end of the send to this call; null for redeliveries")]
    duration_ms: Annotated[int | None, Meta(description="the time in the handler; null if the call is unfinished")]
    earlier_deliveries: Annotated[int | None, Meta(description="how often the message was delivered before")]
    outcome: Annotated[str, Meta(description=f"{', '.join(OUTCOMES)} or {UNFINISHED}")]


class TracesSummary(Summary, frozen=True, kw_only=True):
    """The summary of `mqspark-traces`."""

    schema: Annotated[str, Meta(description="name and version of this format")] = "mqspark-traces/1"
    topic: Annotated[str, Meta(description="the topic of the traces")]
    sends: Annotated[int, Meta(description="traced sends")]
    calls: Annotated[int, Meta(description="traced handler calls")]
    clock_differences: Annotated[int, Meta(description="calls with a latency below 0: clocks of machines differ")]
    producers: Annotated[list[Producing], Meta(description="by topic and producer group, most sends first")]
    consumers: Annotated[list[Consuming], Meta(description="by topic and consumer group, most calls first")]
    slowest_handlers: Annotated[list[Slow], Meta(description="the calls that took longest")]
    slowest_deliveries: Annotated[list[Slow], Meta(description="the calls with the highest latency")]


class Traces:
    """The cached tables of a range of trace messages; `close` releases them.

    With `group`, handler calls of other consumer groups are omitted.
    """

    def __init__(self, messages: DataFrame, group: str | None = None) -> None:
        self._records = records(messages).persist()
        self.sends = sends(self._records)
        calls = consumptions(self._records)
        self.consumptions = (calls if group is None else calls.where(f.col("consumerGroup") == group)).persist()

    def __repr__(self) -> str:
        return f"<Traces {self.consumptions.columns}>"

    def close(self) -> None:
        """Remove the tables from Spark's cache."""
        self.consumptions.unpersist()
        self._records.unpersist()


def summarize(traces: Traces, topic: str, top: int, *, by_client: bool) -> TracesSummary:
    """Return the summary, with at most `top` rows of each list."""
    producers = producing(traces.sends, by_client=by_client).collect()
    consumers = consuming(traces.consumptions, by_client=by_client).collect()
    handlers, deliveries = (_slowest(traces.consumptions, by, top) for by in SLOWEST_BY)
    return TracesSummary(
        topic=topic,
        sends=sum(row["sends"] for row in producers),
        calls=sum(row["calls"] for row in consumers),
        clock_differences=sum(row["clockDifferences"] for row in consumers),
        producers=[_producing(row) for row in producers[:top]],
        consumers=[_consuming(row) for row in consumers[:top]],
        slowest_handlers=handlers,
        slowest_deliveries=deliveries,
    )


def producing(rows: DataFrame, *, by_client: bool) -> DataFrame:
    """Return the figures of sends by topic and producer group, most sends first."""
    grouped = rows.groupBy("topic", "producerGroup", _client(by_client)).agg(
        f.count(f.lit(1)).alias("sends"),
        f.count_if(~f.coalesce("succeeded", f.lit(False))).alias("failed"),
        _spread("costMs").alias("cost"),
    )
    return grouped.orderBy(f.desc("sends"), "topic", "producerGroup", CLIENT_HOST)


def consuming(rows: DataFrame, *, by_client: bool) -> DataFrame:
    """Return the figures of handler calls by topic and consumer group, most calls first."""
    grouped = rows.groupBy("topic", "consumerGroup", _client(by_client)).agg(
        f.count(f.lit(1)).alias("calls"),
        f.count_if(f.col("outcome").isin(*FAILURES)).alias("failed"),
        f.count_if(f.col("outcome") == UNFINISHED).alias("unfinished"),
        f.count_if(f.col("earlierDeliveries") > 0).alias("redeliveries"),
        f.count_if(f.col("latencyMs") < 0).alias("clockDifferences"),
        _spread("latencyMs").alias("latency"),
        _spread("durationMs").alias("duration"),
    )
    return grouped.orderBy(f.desc("calls"), "topic", "consumerGroup", CLIENT_HOST)


def over_time(rows: DataFrame, step_ms: int) -> DataFrame:
    """Return, for each step and consumer group: atMs, consumerGroup, calls, latency and duration."""
    at = (f.floor(f.col("begunMs") / step_ms) * step_ms).cast("bigint")
    grouped = rows.where("begunMs IS NOT NULL").groupBy(at.alias("atMs"), "consumerGroup")
    figures = grouped.agg(
        f.count(f.lit(1)).alias("calls"),
        _spread("latencyMs").alias("latency"),
        _spread("durationMs").alias("duration"),
    )
    return figures.orderBy("atMs", "consumerGroup")


def panels(rows: DataFrame, groups: list[str | None]) -> list[Panel]:
    """Return the plot: p50 and p99 of latency and duration over time, for the first four of the groups."""
    (span,) = rows.agg(f.min("begunMs").alias("first"), f.max("begunMs").alias("last")).collect()
    if span["first"] is None:
        return []
    step_ms = step_of(span["last"] - span["first"])
    shown = [group for group in groups if group is not None][:4]
    points = over_time(rows.where(f.col("consumerGroup").isin(*shown)), step_ms).collect()
    return [
        Panel(heading, [_line(points, group, column, name) for group in shown for name in PERCENTILES])
        for column, heading in (
            ("latency", "from the send to the first handler call, ms"),
            ("duration", "in the handler, ms"),
        )
    ]


def step_of(span_ms: int) -> int:
    """Return the width of a point in ms, so that a span has at most MAX_POINTS points."""
    return next((step for step in STEPS_MS if span_ms / step <= MAX_POINTS), STEPS_MS[-1])


def _line(points: list[Row], group: str, column: str, percentile: str) -> Line:
    times = [(row["atMs"] / 1000, row[column][percentile]) for row in points if row["consumerGroup"] == group]
    return Line(f"{group} {percentile}", [(at, float(value)) for at, value in times if value is not None])


def _spread(column: str) -> Column:
    found = {name: f.percentile_approx(column, share, ACCURACY) for name, share in PERCENTILES.items()}
    return f.struct(*(value.alias(name) for name, value in found.items()), f.max(column).alias("max"))


def _client(by_client: bool) -> Column:
    return (f.col(CLIENT_HOST) if by_client else f.lit(None).cast("string")).alias(CLIENT_HOST)


def _slowest(rows: DataFrame, by: str, top: int) -> list[Slow]:
    return [
        Slow(
            msg_id=row["msgId"],
            topic=row["topic"],
            consumer_group=row["consumerGroup"],
            broker=row["broker"],
            begun_at=utc(row["begunMs"]),
            latency_ms=row["latencyMs"],
            duration_ms=row["durationMs"],
            earlier_deliveries=row["earlierDeliveries"],
            outcome=row["outcome"],
        )
        for row in rows.where(f.col(by).isNotNull()).orderBy(f.desc(by), "msgId", "consumerGroup").limit(top).collect()
    ]


def _producing(row: Row) -> Producing:
    return Producing(
        topic=row["topic"],
        producer_group=row["producerGroup"],
        client_host=row[CLIENT_HOST],
        sends=row["sends"],
        failed=row["failed"],
        cost=_spread_of(row["cost"]),
    )


def _consuming(row: Row) -> Consuming:
    return Consuming(
        topic=row["topic"],
        consumer_group=row["consumerGroup"],
        client_host=row[CLIENT_HOST],
        calls=row["calls"],
        failed=row["failed"],
        unfinished=row["unfinished"],
        redeliveries=row["redeliveries"],
        latency=_spread_of(row["latency"]),
        duration=_spread_of(row["duration"]),
    )


def _spread_of(row: Any) -> Spread:
    return Spread(p50=row["p50"], p99=row["p99"], max=row["max"])
