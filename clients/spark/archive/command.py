"""`mqspark-archive`: moves old segments of a store to Parquet files, verifies them, and lets the broker delete them.

Progress goes to stderr, and only to a terminal; the result goes to stdout, as text or with `--json` as one object.

Exit codes: 0 done, also if nothing was due; 1 failed, what is archived stays archived, and the next run continues; 2
not started: a wrong argument, no store, an archive that another job is writing.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.spark.archive.directory import ArchiveError, Entry
from skylarkmq.clients.spark.archive.files import NotVerified
from skylarkmq.clients.spark.archive.iceberg_table import IcebergTarget
from skylarkmq.clients.spark.archive.job import ArchiveSettings, Summary, opened_job
from skylarkmq.clients.spark.archive.runners import LocalRunner, Runner, SparkRunner
from skylarkmq.clients.spark.command_line import Failed, NotStarted, key_values, reporting
from skylarkmq.clients.spark.session import SUBMITTED, started
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY

NAME: Final = "mqspark-archive"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

HELP: Final = """
Archive old segments of a broker's log as Parquet files, one row for each message, and verify them.

STORE is the broker's storePathRootDir; a broker may be running on it. ARCHIVE is a directory, or a URI such as
s3://bucket/archive. A segment is archived once its newest message is older than --older-than. With archiveHold=true the
broker deletes a segment only after it is archived. Run the job regularly, for example every hour: each run continues
where the previous run ended, even if that run was interrupted.

Examples:\n
  mqspark-archive /data/store /archive -b broker-a\n
  mqspark-archive /data/store /archive -b broker-a --older-than 12h --workers 2\n
  mqspark-archive /backup/store /archive -b broker-a --older-than 0s --include-last --no-mark\n
  mqspark-archive /data/store s3://lake/archive -b broker-a --table mq.messages --catalog prod\n
  mqspark-archive /data/store /archive -b broker-a --json | jq .messages\n
  spark-submit --master yarn deploy/spark/archive.py /mnt/store hdfs:///archive -b broker-a\n
"""

archive = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The store directory, storePathRootDir.")]
Target = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Directory or URI of the archive.")]
Broker = Annotated[str, typer.Option("-b", "--broker-name", help="The broker's brokerName: a column, and a directory.")]
OlderThan = Annotated[str, typer.Option("--older-than", help="Minimum age of messages: a number with s, m, h or d.")]
IncludeLast = Annotated[
    bool, typer.Option("--include-last", help="Also archive the last segment, up to messages that are too young.")
]
Everything = Annotated[
    bool, typer.Option("--everything", help="Also archive records that no consumer can read, with readable=false.")
]
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Leave out damaged records, and report their number.")
]
ForceGap = Annotated[bool, typer.Option("--force-gap", help="Archive a log in which segments are missing.")]
LogDirectories = Annotated[
    list[Path] | None, typer.Option("--log-directory", metavar="DIR", help="Segments, if not in STORE/commitlog.")
]
Mark = Annotated[bool, typer.Option("--mark/--no-mark", help="Write the mark, STORE/config/archive.json.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes, without Spark; one segment each.")]
Master = Annotated[str | None, typer.Option("--master", help="Run on Spark with this master, as with spark-submit.")]
TableName = Annotated[
    str | None, typer.Option("--table", metavar="NAMESPACE.TABLE", help="Add the files to this Iceberg table.")
]
CatalogName = Annotated[str, typer.Option("--catalog", help="PyIceberg's catalog of the table.")]
CatalogOptions = Annotated[
    list[str] | None, typer.Option("--catalog-option", metavar="KEY=VALUE", help="A property of the catalog.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


@archive.command(help=HELP)
def _archive(
    store: Store,
    target: Target,
    broker_name: Broker,
    older_than: OlderThan = "3d",
    include_last: IncludeLast = False,
    everything: Everything = False,
    skip_damaged: SkipDamaged = False,
    force_gap: ForceGap = False,
    log_directories: LogDirectories = None,
    mark: Mark = True,
    workers: Workers = 1,
    master: Master = None,
    table: TableName = None,
    catalog: CatalogName = "default",
    catalog_options: CatalogOptions = None,
    as_json: AsJson = False,
) -> None:
    with reporting(NAME):
        settings = ArchiveSettings(
            store=store.absolute(),
            log_directories=tuple(path.absolute() for path in log_directories or (store / COMMIT_LOG_DIRECTORY,)),
            archive=target if "://" in target else os.path.abspath(target),
            broker_name=broker_name,
            older_than_ms=age_ms(older_than),
            include_last=include_last,
            everything=everything,
            skip_damaged=skip_damaged,
            force_gap=force_gap,
            writes_mark=mark,
            iceberg=None if table is None else IcebergTarget(table, catalog, key_values(catalog_options or [])),
        )
        summary = run(settings, runner_of(workers, master))
    for begin, end in summary.missed:
        typer.echo(f"{NAME}: bytes {begin} to {end} were deleted before they were archived", err=True)
    typer.echo(msgspec.json.encode(summary).decode() if as_json else text_of(summary))


def run(settings: ArchiveSettings, runner: Callable[[], Runner]) -> Summary:
    """Run the job with a progress bar. The runner is created once something is due. Raises NotStarted, Failed."""
    with ExitStack() as opened:
        try:
            job = opened.enter_context(opened_job(settings))
        except (StoreUnreadable, ArchiveError) as problem:
            raise NotStarted(str(problem)) from problem
        advance = opened.enter_context(progress(job.log_bytes))
        try:
            return job.run(runner() if job.log_bytes else LocalRunner(1), advance)
        except (StoreUnreadable, NotVerified, ArchiveError) as problem:
            raise Failed(f"{problem}; the next run continues") from problem


def age_ms(text: str) -> int:
    """Return the milliseconds of an age such as `3d`. Raises NotStarted."""
    found = re.fullmatch(r"(\d+)([smhd])", text.strip())
    if found is None:
        raise NotStarted(f"--older-than must be a number with a unit (s, m, h, d), such as 3d, not {text!r}")
    return int(found[1]) * _UNIT_MS[found[2]]


def runner_of(workers: int, master: str | None) -> Callable[[], Runner]:
    """Return a function that creates the runner: on Spark if spark-submit runs the command, or with a master."""
    if master is None and SUBMITTED not in os.environ:
        return lambda: LocalRunner(workers)
    return lambda: SparkRunner(started(NAME, {"spark.speculation": "false"}, master))


@contextmanager
def progress(total: int) -> Iterator[Callable[[Entry], object]]:
    """Show a progress bar of `total` bytes on a terminal; yield a function that advances it."""
    columns = (TextColumn("archiving"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal or not total) as bar:
        row = bar.add_task("", total=total)
        yield lambda entry: bar.advance(row, entry.end - entry.begin)


def text_of(summary: Summary) -> str:
    """Return the result in a few lines."""
    rate = summary.log_bytes / 1e6 / max(summary.seconds, 0.001)
    lines = [
        f"{summary.messages} messages in {summary.files} files, {summary.file_bytes / 1e6:.1f} MB",
        f"{summary.log_bytes / 1e6:.1f} MB of log in {summary.seconds:.1f} s, {rate:.0f} MB/s",
        f"archived up to byte {summary.mark}",
    ]
    if summary.left_out:
        lines.append(f"{summary.left_out} records that no consumer can read were left out (--everything keeps them)")
    if summary.damaged:
        lines.append(f"{summary.damaged} damaged records were left out")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    archive()


if __name__ == "__main__":
    main()
