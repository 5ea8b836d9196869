"""Consumer lag over time, from samples of offsets.

    samples --steps--> + what each queue consumed and received since its previous sample
        --over_time--> lag and rates of each group and topic at each sample
            --states--> each group and topic at its last sample: rates of the last `window`, progress, catch-up time

A sample has all queues of a group and one time, so sums over queues compare. An offset that moves back (a reset, or a
topic that was created again) counts as no consumption. Rates are messages per second.
"""

from typing import Annotated, Any, Final

from msgspec import Meta
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from skylarkmq.clients.spark.jobs.chart import MAX_LINES, Line, Panel
from skylarkmq.clients.terminal.printed_output import Summary, utc

QUEUE: Final = ("consumerGroup", "topic", "brokerName", "queueId")
GROUP: Final = ("consumerGroup", "topic")
UNKNOWN, CAUGHT_UP, CATCHING_UP, FALLING_BEHIND, STALLED = (
    "unknown", "caught up", "catching up", "falling behind", "stalled"
)  # fmt: skip
MAX_POINTS: Final = 500


class GroupLag(Summary, frozen=True, kw_only=True):
    """A consumer group and a topic at the last sample."""

    consumer_group: Annotated[str, Meta(description="the consumer group")]
    topic: Annotated[str, Meta(description="the topic")]
    state: Annotated[
        str,
        Meta(
            description="`caught up`: no lag; `stalled`: lag, and nothing consumed within the window; `catching up` or "
            "`falling behind`: by the rates; `unknown`: a single sample"
        ),
    ]
    queues: Annotated[int, Meta(description="queues of the topic")]
    lag: Annotated[int, Meta(description="messages that are not consumed, over all queues")]
    largest_queue_lag: Annotated[int, Meta(description="the largest lag of one queue")]
    highest_lag: Annotated[int, Meta(description="the highest lag of all samples")]
    consumed_per_second: Annotated[float | None, Meta(description="messages consumed per second within the window")]
    produced_per_second: Annotated[float | None, Meta(description="messages stored per second within the window")]
    catch_up_seconds: Annotated[
        float | None, Meta(description="time until there is no lag at these rates; null if the lag does not decrease")
    ]
    last_progress_at: Annotated[
        str | None, Meta(description="the last sample with consumed messages, UTC; null if nothing was consumed")
    ]
    seconds_without_progress: Annotated[
        float | None,
        Meta(description="from lastProgressAt, or from the first sample, to the last sample; null without lag"),
    ]
    sampled_at: Annotated[str | None, Meta(description="the last sample, UTC")]


class LagSummary(Summary, frozen=True, kw_only=True):
    """The summary of `mqspark-lag report`."""

    schema: Annotated[str, Meta(description="name and version of this format")] = "mqspark-lag/1"
    first_sample_at: Annotated[str | None, Meta(description="the first sample, UTC; null without samples")]
    last_sample_at: Annotated[str | None, Meta(description="the last sample, UTC")]
    samples: Annotated[int, Meta(description="different times of samples")]
    total_lag: Annotated[int, Meta(description="the lag of all groups at their last samples")]
    window_seconds: Annotated[float, Meta(description="the window of the rates")]
    groups: Annotated[list[GroupLag], Meta(description="groups and topics, largest lag first")]


def steps(samples: DataFrame) -> DataFrame:
    """Return the samples with lag, and with seconds, consumed and produced since the queue's previous sample.

    The three are null for the first sample of a queue. `samples`: the columns of lag_samples.SCHEMA.
    """
    rows = samples.dropDuplicates([*QUEUE, "sampledAt"])
    order = Window.partitionBy(*QUEUE).orderBy("sampledAt")

    def growth(column: str) -> Column:
        return f.greatest(f.col(column) - f.lag(column).over(order), f.lit(0))

    seconds = f.unix_micros("sampledAt") - f.lag(f.unix_micros("sampledAt")).over(order)
    return rows.select(
        *QUEUE,
        "sampledAt",
        f.greatest(f.col("brokerOffset") - f.col("consumerOffset"), f.lit(0)).alias("lag"),
        (seconds / 1e6).alias("seconds"),
        f.when(seconds.isNotNull(), growth("consumerOffset")).alias("consumed"),
        f.when(seconds.isNotNull(), growth("brokerOffset")).alias("produced"),
    )


def over_time(rows: DataFrame) -> DataFrame:
    """Return, for each group, topic and sample: queues, lag, largestQueueLag, seconds, consumed, produced."""
    return rows.groupBy(*GROUP, "sampledAt").agg(
        f.count(f.lit(1)).alias("queues"),
        f.sum("lag").alias("lag"),
        f.max("lag").alias("largestQueueLag"),
        f.max("seconds").alias("seconds"),
        f.sum("consumed").alias("consumed"),
        f.sum("produced").alias("produced"),
    )


def states(series: DataFrame, window_s: float) -> DataFrame:
    """Return a row for each group and topic, largest lag first; `series` is the result of `over_time`.

    The window ends with the group's last sample and contains at least one step.
    """
    of_group = Window.partitionBy(*GROUP)
    last = f.max("sampledAt").over(of_group)
    age = (f.unix_micros(last) - f.unix_micros("sampledAt")) / 1e6
    counts = (age < window_s) & f.col("seconds").isNotNull() | (f.col("sampledAt") == last)
    rows = series.withColumn("counts", counts)

    def in_window(column: str) -> Column:
        return f.sum(f.when(f.col("counts"), f.col(column)))

    latest = {name: f.max_by(name, "sampledAt") for name in ("queues", "lag", "largestQueueLag")}
    grouped = rows.groupBy(*GROUP).agg(
        *(value.alias(name) for name, value in latest.items()),
        f.max("lag").alias("highestLag"),
        (in_window("consumed") / in_window("seconds")).alias("consumedPerSecond"),
        (in_window("produced") / in_window("seconds")).alias("producedPerSecond"),
        f.unix_millis(f.max(f.when(f.col("consumed") > 0, f.col("sampledAt")))).alias("lastProgressMs"),
        f.unix_millis(f.min("sampledAt")).alias("firstMs"),
        f.unix_millis(f.max("sampledAt")).alias("sampledMs"),
    )
    consumed, produced = f.col("consumedPerSecond"), f.col("producedPerSecond")
    idle_s = (f.col("sampledMs") - f.coalesce("lastProgressMs", "firstMs")) / 1e3
    state = (
        f.when(f.col("lag") == 0, CAUGHT_UP)
        .when(consumed.isNull(), UNKNOWN)
        .when(consumed == 0, STALLED)
        .when(consumed > produced, CATCHING_UP)
        .otherwise(FALLING_BEHIND)
    )
    return grouped.select(
        "*",
        state.alias("state"),
        f.when(consumed > produced, f.col("lag") / (consumed - produced)).alias("catchUpSeconds"),
        f.when(f.col("lag") > 0, idle_s).alias("secondsWithoutProgress"),
    ).orderBy(f.desc("lag"), *GROUP)


def summarize(series: DataFrame, window_s: float, top: int) -> LagSummary:
    """Return the summary, with at most `top` groups and topics; `series` is the result of `over_time`."""
    (span,) = series.agg(
        f.unix_millis(f.min("sampledAt")).alias("first"),
        f.unix_millis(f.max("sampledAt")).alias("last"),
        f.count_distinct("sampledAt").alias("samples"),
    ).collect()
    rows = states(series, window_s).collect()
    return LagSummary(
        first_sample_at=utc(span["first"]),
        last_sample_at=utc(span["last"]),
        samples=span["samples"],
        total_lag=sum(row["lag"] for row in rows),
        window_seconds=window_s,
        groups=[_group(row) for row in rows[:top]],
    )


def panels(series: DataFrame, groups: list[GroupLag]) -> list[Panel]:
    """Return the plot: lag and consumption rate over time, for the first MAX_LINES of the groups.

    A long history is drawn with MAX_POINTS points of a line: the highest lag and the mean rate of each step.
    """
    names = [(group.consumer_group, group.topic) for group in groups[:MAX_LINES]]
    keys = f.struct(*GROUP)
    chosen = series.where(keys.isin(*(f.struct(f.lit(group), f.lit(topic)) for group, topic in names)))
    at = f.unix_millis("sampledAt")
    (span,) = chosen.agg(f.min(at).alias("first"), f.max(at).alias("last")).collect()
    if span["first"] is None:
        return []
    step_ms = max((span["last"] - span["first"]) // MAX_POINTS, 1)
    points = (
        chosen.groupBy(*GROUP, (f.floor((at - span["first"]) / step_ms) * step_ms + span["first"]).alias("atMs"))
        .agg(f.max("lag").alias("lag"), (f.sum("consumed") / f.sum("seconds")).alias("rate"))
        .orderBy("atMs")
        .collect()
    )
    return [
        Panel("lag, messages", [_line(points, name, "lag") for name in names]),
        Panel("consumed, messages/s", [_line(points, name, "rate") for name in names]),
    ]


def _line(points: list[Row], name: tuple[str, str], column: str) -> Line:
    rows = [row for row in points if (row["consumerGroup"], row["topic"]) == name and row[column] is not None]
    return Line(" ".join(name), [(row["atMs"] / 1000, float(row[column])) for row in rows])


def _group(row: Any) -> GroupLag:
    return GroupLag(
        consumer_group=row["consumerGroup"],
        topic=row["topic"],
        state=row["state"],
        queues=row["queues"],
        lag=row["lag"],
        largest_queue_lag=row["largestQueueLag"],
        highest_lag=row["highestLag"],
        consumed_per_second=row["consumedPerSecond"],
        produced_per_second=row["producedPerSecond"],
        catch_up_seconds=row["catchUpSeconds"],
        last_progress_at=utc(row["lastProgressMs"]),
        seconds_without_progress=row["secondsWithoutProgress"],
        sampled_at=utc(row["sampledMs"]),
    )
