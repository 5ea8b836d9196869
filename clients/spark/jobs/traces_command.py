"""The command `mqspark-traces`: how long sends, deliveries and handlers took, from message traces.

Exit codes: 0 done; 1 failed; 2 not started.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.table import Table

from skylarkmq.clients.spark.command_line import Conf, Given, Master, NotStarted, key_values, reporting
from skylarkmq.clients.spark.jobs.arguments import (
    SETTINGS,
    Archive,
    AsJson,
    Since,
    Source,
    Store,
    Svg,
    Top,
    Until,
    selection_of,
)
from skylarkmq.clients.spark.jobs.chart import save_svg
from skylarkmq.clients.spark.jobs.messages import check, messages
from skylarkmq.clients.spark.jobs.trace_summary import (
    Consuming,
    Producing,
    Slow,
    Spread,
    Traces,
    TracesSummary,
    panels,
    summarize,
)
from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.spark.session import started
from skylarkmq.clients.terminal.printed_output import print_json, print_tables, short_time, table
from skylarkmq.protocol.codes import SystemTopic

NAME: Final = "mqspark-traces"
HELP: Final = """
Show how long sends, deliveries and handlers took, from the message traces of clients: by producer group and consumer
group, with failures, redeliveries and the slowest messages.

Clients write traces if tracing is on: trace=True in the SDK, enableMsgTrace in Java.

Examples:\n
  mqspark-traces -n 127.0.0.1:9876 --since 1h\n
  mqspark-traces -n 127.0.0.1:9876 --since 2024-05-01T13:00 --until 2024-05-01T14:00 --svg traces.svg\n
  mqspark-traces -n 127.0.0.1:9876 --group billing --json | jq '.consumers[].duration.p99'\n
  mqspark-traces --archive s3a://lake/archive --by-client\n
"""

NAMES: Final = ("topic", "group")

traces = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

TraceTopic = Annotated[str, typer.Option("-t", "--topic", help="The topic of the traces.")]
Group = Annotated[str | None, typer.Option("--group", help="Only handler calls of this consumer group.")]
ByClient = Annotated[
    bool, typer.Option("--by-client", help="Separate clients by their addresses, which only archives contain.")
]


@traces.command(help=HELP)
def _traces(
    name_server: Source = None,
    store: Store = None,
    archive: Archive = None,
    topic: TraceTopic = SystemTopic.TRACE,
    since: Since = None,
    until: Until = None,
    group: Group = None,
    by_client: ByClient = False,
    top: Top = 10,
    svg: Svg = None,
    as_json: AsJson = False,
    given: Given = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    with reporting(NAME):
        selection = selection_of(
            topic, name_server=name_server, store=store, archive=archive, since=since, until=until, given=given
        )
        if by_client and archive is None:
            raise NotStarted("--by-client needs --archive: topics and stores have no column of client addresses")
        check(selection, "no client has sent traces; see --help.")
        spark = started(f"{NAME} {topic}", SETTINGS | key_values(conf or []), master)
        found = Traces(messages(spark, selection), group)
        try:
            with progress_bar(spark, "reading traces"):
                summary = summarize(found, topic, top, by_client=by_client)
                if svg is not None:
                    groups = list(dict.fromkeys(row.consumer_group for row in summary.consumers))
                    save_svg(svg, f"Message traces of {topic}", panels(found.consumptions, groups))
        finally:
            found.close()
        if as_json:
            print_json(summary)
        else:
            print_tables(heading(summary), tables(summary))


def heading(summary: TracesSummary) -> str:
    """Return the counts as one line."""
    text = f"{summary.topic}: {summary.sends:,} sends, {summary.calls:,} handler calls"
    if summary.clock_differences:
        text += f"; {summary.clock_differences:,} calls began before the end of their send: clocks differ"
    return text


def tables(summary: TracesSummary) -> Iterator[Table]:
    """Yield producers, consumers and the slowest calls; times in ms."""
    producers = [
        (*names(row.topic, row.producer_group, row), row.sends, row.failed, *spread(row.cost))
        for row in summary.producers
    ]
    yield table("Sends (ms)", (*NAMES, "sends", "failed", "p50", "p99", "max"), producers)
    calls = [
        (*names(row.topic, row.consumer_group, row), row.calls, row.failed, row.unfinished, row.redeliveries)
        for row in summary.consumers
    ]
    yield table("Handler calls", (*NAMES, "calls", "failed", "unfinished", "redelivered"), calls)
    for title, times in (
        ("From the send to the first call (ms)", [row.latency for row in summary.consumers]),
        ("In the handler (ms)", [row.duration for row in summary.consumers]),
    ):
        rows = [
            (*names(row.topic, row.consumer_group, row), *spread(of))
            for row, of in zip(summary.consumers, times, strict=True)
        ]
        yield table(title, (*NAMES, "p50", "p99", "max"), rows)
    yield slowest("Slowest handler calls (ms)", summary.slowest_handlers)
    yield slowest("Slowest deliveries (ms)", summary.slowest_deliveries)


def names(topic: str | None, group: str | None, row: Producing | Consuming) -> tuple[str | None, str | None]:
    """Return the columns NAMES of a row: the topic, and the group with the address of its client."""
    return topic, group if row.client_host is None else f"{group} {row.client_host}"


def slowest(title: str, rows: list[Slow]) -> Table:
    """Return a table of single calls; `before`: earlier deliveries."""
    columns = ("message", "topic", "group", "begun", "latency", "duration", "before", "outcome")
    return table(
        title,
        columns,
        [
            (
                row.msg_id,
                row.topic,
                row.consumer_group,
                short_time(row.begun_at),
                row.latency_ms,
                row.duration_ms,
                row.earlier_deliveries,
                row.outcome,
            )
            for row in rows
        ],
    )


def spread(of: Spread) -> tuple[float | None, float | None, float | None]:
    """Return the columns of a spread."""
    return of.p50, of.p99, of.max


def main() -> None:
    """Run the command."""
    traces()


if __name__ == "__main__":
    main()
