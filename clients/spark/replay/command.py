"""The command `mqspark-replay`, also `python -m skylarkmq.clients.spark.replay.command`.

Progress goes to stderr, and only to a terminal; the result goes to stdout, as text or with `--json` as one object.

Exit codes: 0 everything is sent, or counted; 1 failed or stopped, and the same command resumes, or a message is stored
twice; 2 not started: a wrong argument, no archive, no cluster, or a directory of another replay.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.topic.bounds import Unreachable
from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.spark.base.cluster_options import CLUSTER_ROWS, cluster_fields
from skylarkmq.clients.spark.base.options import Table, parse
from skylarkmq.clients.spark.command_line import FAILED, NotStarted, check_cluster, key_values, reporting
from skylarkmq.clients.spark.replay.errors import ArchiveUnreadable, JournalError, ReplayFailed, Stopped
from skylarkmq.clients.spark.replay.pace import parse_rate
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.clients.spark.replay.replay import GROUP, Replay, Summary, dry_run, run
from skylarkmq.clients.spark.replay.replay import Progress as RunProgress
from skylarkmq.clients.spark.replay.selection import Selection
from skylarkmq.clients.spark.replay.sources import Archive, ArchiveTable, Source, Store, Topics
from skylarkmq.clients.spark.replay.targets import Targets

NAME: Final = "mqspark-replay"
HELP: Final = """
Send messages of an archive, a store directory or live topics again, each once, in the order of each queue.

Copies keep body, keys, tags, unique id and the properties of the producer. DIRECTORY gets the map from old to new
offsets (DIRECTORY/map/*.parquet) and the state: the same command resumes after any interruption.

Examples:\n
  mqspark-replay replay-1 -n 127.0.0.1:9876 --archive /archive -t Orders\n
  mqspark-replay replay-2 -n 127.0.0.1:9876 --archive /archive -t Orders --to-topic Orders-again --rate 10000/s\n
  mqspark-replay replay-3 -n 127.0.0.1:9876 --archive s3://lake/archive --since 2026-11-01T08:00 --until 2026-11-02\n
  mqspark-replay replay-4 -n 127.0.0.1:9876 --store /backup/store -b broker-a --key order-4711 --map-topic Orders=Test\n
  mqspark-replay replay-5 -n 127.0.0.1:9876 --live -t Orders --where "property(properties, 'vat') > ''" --to-topic VAT\n
  mqspark-replay replay-6 -n 127.0.0.1:9876 --live -t %DLQ%shop --delay-level 5\n
  mqspark-replay replay-7 --archive /archive -t Orders --dry-run --json\n
"""

replay = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

CLUSTER: Final = Table(NAME, ClusterOptions, CLUSTER_ROWS, assemble=cluster_fields)

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Directory of the map and the state.")]
NameServer = Annotated[
    str | None, typer.Option("-n", "--name-server", metavar="ADDR;ADDR", help="Name servers, host:port.")
]
OfArchive = Annotated[str | None, typer.Option("--archive", help="Source: directory or URI of an archive.")]
OfTable = Annotated[str | None, typer.Option("--table", metavar="NAMESPACE.TABLE", help="Source: an Iceberg table.")]
Catalog = Annotated[str, typer.Option("--catalog", help="PyIceberg's catalog of the table.")]
CatalogOptions = Annotated[
    list[str] | None, typer.Option("--catalog-option", metavar="KEY=VALUE", help="A property of the catalog.")
]
OfStore = Annotated[str | None, typer.Option("--store", help="Source: a store directory, storePathRootDir.")]
BrokerName = Annotated[str, typer.Option("-b", "--broker-name", help="The brokerName of the store.")]
NoIndex = Annotated[
    bool, typer.Option("--no-index", help="Search the whole store for --key, because its index has another size.")
]
OfLive = Annotated[bool, typer.Option("--live", help="Source: the topics themselves, up to their current ends.")]
TopicNames = Annotated[str | None, typer.Option("-t", "--topics", help="Select topics, separated by commas.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Select messages stored at this time or later: ISO 8601, or ms."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Select messages stored before.")]
Key = Annotated[str | None, typer.Option("--key", help="Select messages with this key or unique id.")]
Where = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Select by a condition over the columns of the archive.")
]
ToTopic = Annotated[str | None, typer.Option("--to-topic", metavar="TOPIC", help="Send all copies to this topic.")]
MapTopic = Annotated[
    list[str] | None, typer.Option("--map-topic", metavar="OLD=NEW", help="Send copies of one topic to another.")
]
TopicProperty = Annotated[
    str | None, typer.Option("--topic-property", metavar="NAME", help="Send each copy to the topic in this property.")
]
DelayLevel = Annotated[int, typer.Option("--delay-level", min=0, max=18, help="Delay level of the copies; 0: none.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="N/s", help="Maximum rate in total: 10000/s, 600/min.")]
Settle = Annotated[
    float,
    typer.Option(
        "--settle", min=0.0, metavar="SECONDS", help="How long after its end a broker may still store a request."
    ),
]
Group = Annotated[str, typer.Option("--group", help="Group that sends, and reads the ends of the new queues.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the messages by new topic, and send nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="Credentials and TLS, as in docs/use/spark/sources.md: accessKey, tls.*"
    ),
]


@replay.command(help=HELP)
def _replay(
    directory: Directory,
    name_server: NameServer = None,
    archive: OfArchive = None,
    table: OfTable = None,
    catalog: Catalog = "default",
    catalog_options: CatalogOptions = None,
    store: OfStore = None,
    broker_name: BrokerName = "",
    no_index: NoIndex = False,
    live: OfLive = False,
    topics: TopicNames = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    to_topic: ToTopic = None,
    map_topic: MapTopic = None,
    topic_property: TopicProperty = None,
    delay_level: DelayLevel = 0,
    rate: Rate = None,
    settle: Settle = Limits().settle_s,
    group: Group = GROUP,
    dry: DryRun = False,
    as_json: AsJson = False,
    given: Given = None,
) -> None:
    with reporting(NAME), failing(NAME):
        cluster = None if name_server is None else parse(CLUSTER, {"nameServer": name_server} | key_values(given or []))
        if cluster is None and (live or not dry):
            raise NotStarted("--name-server is required, except for a --dry-run of an archive or a store")
        sources: list[Source | None] = [
            None if archive is None else Archive(archive),
            None if table is None else ArchiveTable(table, catalog, key_values(catalog_options or [])),
            None if store is None else Store(store, broker_name, not no_index),
            Topics(cluster, group) if live and cluster is not None else None,
        ]
        made = Replay(
            source=only_source(sources),
            cluster=cluster,
            directory=str(directory),
            selection=Selection(
                topics=None if topics is None else topic_names(topics),
                since_ms=None if since is None else time_ms("--since", since),
                until_ms=None if until is None else time_ms("--until", until),
                key=key,
                where=where,
            ),
            targets=targets(to_topic, key_values(map_topic or []), topic_property, delay_level),
            rate=None if rate is None else _rate(rate),
            limits=Limits(settle_s=settle),
            group=group,
        )
        summary = dry_run(made) if dry else run_with_progress(made)
    typer.echo(msgspec.json.encode(summary).decode() if as_json else text_of(summary))
    raise typer.Exit(FAILED if summary.doubles else 0)


@contextmanager
def failing(command: str) -> Iterator[None]:
    """Turn the errors of a replay into those that `reporting` maps to exit codes."""
    try:
        yield
    except (ArchiveUnreadable, StoreUnreadable, JournalError, Unreachable, ValueError) as error:
        raise NotStarted(str(error)) from error
    except (ReplayFailed, Stopped) as error:
        typer.echo(f"{command}: {error}", err=True)
        raise typer.Exit(FAILED) from None


# Arguments.


def only_source(sources: Sequence[Source | None]) -> Source:
    """Return the one source that is set. Raises NotStarted."""
    found = [source for source in sources if source is not None]
    if len(found) != 1:
        raise NotStarted("set one source: --archive, --table, --store or --live")
    return found[0]


def topic_names(text: str) -> tuple[str, ...]:
    """Return topic names, separated by commas in the text. Raises NotStarted if there are none."""
    names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not names:
        raise NotStarted("--topics names no topic")
    return names


def targets(to_topic: str | None, mapping: dict[str, str], topic_property: str | None, delay_level: int) -> Targets:
    """Return where copies go. Raises NotStarted."""
    try:
        return Targets(to_topic=to_topic, topics=mapping, topic_property=topic_property, delay_level=delay_level)
    except ValueError as error:
        raise NotStarted(str(error)) from None


def time_ms(option: str, text: str) -> int:
    """Return ms since 1970 of an ISO 8601 time (UTC unless it has a zone) or of a number of ms. Raises NotStarted."""
    if text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise NotStarted(f"{option} must be a time such as 2026-11-01T08:00, or ms since 1970, not {text!r}") from None
    return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _rate(text: str) -> float:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise NotStarted(f"--rate must be {error}") from None


# The run.


def run_with_progress(made: Replay) -> Summary:
    """Run a replay with a progress bar; SIGTERM and SIGINT stop it. Raises Stopped, and the errors of `run`."""
    assert made.cluster is not None
    check_cluster(made.cluster, [topic for topic in (made.targets.to_topic, *made.targets.topics.values()) if topic])
    signal.signal(signal.SIGTERM, _interrupt)
    with progress_bar() as advance:
        try:
            return run(made, advance)
        except KeyboardInterrupt:
            raise Stopped("stopped: the same command sends the rest") from None


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def progress_bar() -> Iterator[Callable[[RunProgress], None]]:
    """Show rows read and messages sent, if stderr is a terminal; yield the function that advances the bar."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("replay"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TextColumn("rows"))
    sent = TextColumn("{task.fields[sent]:,} sent")
    with Progress(*columns, sent, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("replay", total=None, sent=0)
        yield lambda now: bar.update(task, completed=now.read, total=now.total, sent=now.sent)


def text_of(summary: Summary) -> str:
    """Return the summary as text."""
    by_topic = "".join(f"\n  {topic}: {count:,}" for topic, count in summary.topics.items())
    if summary.replay is None:
        return f"{summary.selected:,} of {summary.read:,} messages would be sent{':' if by_topic else ''}{by_topic}"
    rate = f", {summary.sent / summary.seconds:,.0f}/s" if summary.seconds else ""
    lines = [f"{summary.sent:,} messages sent in {summary.seconds:.1f} s{rate}{by_topic}"]
    if summary.sent_before:
        lines.append(f"{summary.sent_before:,} were sent before, {summary.found:,} of them were not yet in the map")
    if summary.not_replicated:
        lines.append(
            f"{summary.not_replicated:,} were stored, but not flushed or replicated in time: check the brokers"
        )
    if summary.doubles:
        lines.append(f"{summary.doubles:,} are stored twice: a broker stored a request late")
    lines.append(f"map of offsets: {summary.map}")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    replay()


if __name__ == "__main__":
    main()
