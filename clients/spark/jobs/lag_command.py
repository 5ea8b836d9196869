"""The command `mqspark-lag`: `sample` records the lag of consumer groups in a table, `report` evaluates the table.

`sample` needs no Spark session. SIGTERM and SIGINT end it after the samples that it holds are written.

Exit codes: 0 done, or stopped by a signal; 1 failed; 2 not started.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.table import Table

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.spark.base import options
from skylarkmq.clients.spark.base.cluster_options import CLUSTER_ROWS, cluster_fields
from skylarkmq.clients.spark.command_line import (
    Conf,
    Master,
    NameServer,
    NotStarted,
    check_cluster,
    error_summary,
    key_values,
    reporting,
)
from skylarkmq.clients.spark.jobs.arguments import SETTINGS, AsJson, Since, Svg, Top, Until, period_s, time_ms
from skylarkmq.clients.spark.jobs.chart import save_svg
from skylarkmq.clients.spark.jobs.lag import LagSummary, over_time, panels, steps, summarize
from skylarkmq.clients.spark.jobs.lag_samples import SCHEMA, Sampler
from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.spark.session import started
from skylarkmq.clients.terminal.printed_output import duration, print_json, print_tables, table

NAME: Final = "mqspark-lag"
CLUSTER_OPTIONS: Final = options.Table(NAME, ClusterOptions, CLUSTER_ROWS, assemble=cluster_fields)
SAMPLE_HELP: Final = """
Record the lag of consumer groups in a Parquet table: each group, topic and queue at each sample.

Samples are appended in complete files. The process keeps the samples of up to --append-every in memory; on a signal it
writes them.

Examples:\n
  mqspark-lag sample -n 127.0.0.1:9876 -o lag --once\n
  mqspark-lag sample -n "ns1:9876;ns2:9876" -o /data/lag --every 30s\n
  mqspark-lag sample -n 127.0.0.1:9876 -o lag --groups billing,shipping --every 10s --append-every 1m\n
"""
REPORT_HELP: Final = """
Evaluate a table of samples: the largest lags, rates, time without progress, and the time until a group has caught up.

Examples:\n
  mqspark-lag report lag\n
  mqspark-lag report lag --since 24h --window 30m --svg lag.svg\n
  mqspark-lag report lag --groups billing --json | jq '.groups[] | select(.state == "stalled")'\n
"""

lag = typer.Typer(
    help="Record the lag of consumer groups over time, and report it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Output = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Directory of the table.")]
Groups = Annotated[str | None, typer.Option("--groups", help="Consumer groups, separated by commas; default: all.")]
Every = Annotated[str, typer.Option("--every", metavar="TIME", help="Time between samples.")]
Once = Annotated[bool, typer.Option("--once", help="Take one sample and exit.")]
AppendEvery = Annotated[str, typer.Option("--append-every", metavar="TIME", help="Time between files.")]
Given = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="accessKey, secretKey, tls.enable and so on.")
]
SampleTable = Annotated[str, typer.Argument(metavar="TABLE", help="The table; any URI that Spark supports.")]
RateWindow = Annotated[
    str, typer.Option("--window", metavar="TIME", help="Rates are measured over this time at the end.")
]


# Samples.


@lag.command("sample", help=SAMPLE_HELP, short_help="Record the lag of consumer groups.")
def _sample(
    name_server: NameServer,
    output: Output,
    groups: Groups = None,
    every: Every = "30s",
    once: Once = False,
    append_every: AppendEvery = "5m",
    given: Given = None,
) -> None:
    with reporting(NAME):
        cluster = options.parse(CLUSTER_OPTIONS, {"nameServer": name_server} | key_values(given or []))
        every_s, append_s = period_s(every, "--every"), period_s(append_every, "--append-every")
        names = names_of(groups)
        check_cluster(cluster)
        asyncio.run(record(cluster, output, names, None if once else every_s, append_s))


async def record(
    cluster: ClusterOptions, output: Path, groups: list[str] | None, every_s: float | None, append_s: float
) -> None:
    """Take samples until a signal arrives; `every_s` None: take one. Raises OSError; ClientError for one sample."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with Client(cluster.name_server, cluster.client_settings()) as client, Admin(client=client) as admin:
        sampler = Sampler(admin, output, groups, append_s)
        due_s = time.monotonic()
        try:
            while not stopping.is_set():
                try:
                    typer.echo(line(await sampler.add(datetime.now(UTC), time.monotonic())), err=True)
                except ClientError as error:
                    if every_s is None:
                        raise
                    typer.echo(f"{NAME}: no sample: {error}", err=True)
                if every_s is None:
                    return
                due_s = max(due_s + every_s, time.monotonic())
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), due_s - time.monotonic())
        finally:
            sampler.write()


def line(rows: pa.Table) -> str:
    """Return the progress line of a sample."""
    behind = pc.sum(pc.max_element_wise(pc.subtract(rows["brokerOffset"], rows["consumerOffset"]), 0)).as_py() or 0
    return f"sample groups={len(rows['consumerGroup'].unique())} queues={rows.num_rows} lag={behind}"


def names_of(groups: str | None) -> list[str] | None:
    """Return the names of a comma list. Raises NotStarted for an empty list."""
    if groups is None:
        return None
    names = [name.strip() for name in groups.split(",") if name.strip()]
    if not names:
        raise NotStarted("--groups must be names separated by commas")
    return names


# The report.


@lag.command("report", help=REPORT_HELP, short_help="Evaluate recorded samples.")
def _report(
    samples: SampleTable,
    groups: Groups = None,
    since: Since = None,
    until: Until = None,
    window: RateWindow = "10m",
    top: Top = 20,
    svg: Svg = None,
    as_json: AsJson = False,
    conf: Conf = None,
    master: Master = None,
) -> None:
    with reporting(NAME):
        names, window_s = names_of(groups), period_s(window, "--window")
        since_ms, until_ms = time_ms(since, "--since"), time_ms(until, "--until")
        spark = started(f"{NAME} {samples}", SETTINGS | key_values(conf or []), master)
        series = over_time(steps(recorded(spark, samples, names, since_ms, until_ms))).persist()
        try:
            with progress_bar(spark, "reading samples"):
                summary = summarize(series, window_s, top)
                if svg is not None:
                    save_svg(svg, f"Consumer lag, {samples}", panels(series, summary.groups))
        finally:
            series.unpersist()
        if as_json:
            print_json(summary)
        else:
            print_tables(heading(summary), tables(summary))


def recorded(
    spark: SparkSession, path: str, groups: list[str] | None, since_ms: int | None, until_ms: int | None
) -> DataFrame:
    """Return the samples of a table within the times. Raises NotStarted if it is not such a table."""
    try:
        rows = spark.read.parquet(path)
    except AnalysisException as error:
        raise NotStarted(
            f"no samples in {path}: {error_summary(str(error))} `{NAME} sample -o {path}` records some."
        ) from None
    missing = [name for name in SCHEMA.names if name not in rows.columns]
    if missing:
        raise NotStarted(f"{path} is not a table of samples: the column {missing[0]} is missing")
    at = f.unix_millis("sampledAt")
    if since_ms is not None:
        rows = rows.where(at >= since_ms)
        if "day" in rows.columns:
            rows = rows.where(f.col("day") >= f.to_date(f.timestamp_millis(f.lit(since_ms))))  # reads fewer files
    if until_ms is not None:
        rows = rows.where(at < until_ms)
    return rows if groups is None else rows.where(f.col("consumerGroup").isin(groups))


def heading(summary: LagSummary) -> str:
    """Return the range of the samples as one line."""
    if summary.first_sample_at is None:
        return "no samples in this range"
    return (
        f"{summary.samples:,} samples from {summary.first_sample_at} to {summary.last_sample_at}, "
        f"total lag {summary.total_lag:,}"
    )


def tables(summary: LagSummary) -> Iterator[Table]:
    """Yield the groups: their lag, and their progress."""
    lags = [
        (row.consumer_group, row.topic, row.state, row.lag, row.largest_queue_lag, row.highest_lag, row.queues)
        for row in summary.groups
    ]
    yield table("Lag (messages)", ("group", "topic", "state", "lag", "largest queue", "highest", "queues"), lags)
    progress = [
        (
            row.consumer_group,
            row.topic,
            row.consumed_per_second,
            row.produced_per_second,
            duration(row.catch_up_seconds),
            duration(row.seconds_without_progress),
        )
        for row in summary.groups
        if row.lag
    ]
    yield table(
        "Groups with lag",
        ("group", "topic", "consumed/s", "produced/s", "caught up in", "without progress"),
        progress,
    )


def main() -> None:
    """Run the command."""
    lag()


if __name__ == "__main__":
    main()
