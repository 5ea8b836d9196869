"""The command `mqspark-duplicates`: messages of a topic with the same key, id, mark, body or property.

Exit codes: 0 done, with or without duplicates; 1 failed; 2 not started.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.table import Table

from skylarkmq.clients.spark.command_line import Conf, Given, Master, key_values, reporting
from skylarkmq.clients.spark.jobs.arguments import (
    SETTINGS,
    Archive,
    AsJson,
    Since,
    Source,
    Store,
    Top,
    Topic,
    Until,
    Where,
    selection_of,
)
from skylarkmq.clients.spark.jobs.duplicates import BY_HELP, Duplicated, DuplicatesSummary, check_value, summarize
from skylarkmq.clients.spark.jobs.messages import check, messages
from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.spark.session import started
from skylarkmq.clients.terminal.printed_output import duration, print_json, print_tables, short_time, table

NAME: Final = "mqspark-duplicates"
HELP: Final = """
Find messages of a topic with the same value: where they are, and how far apart in time.

Examples:\n
  mqspark-duplicates -n 127.0.0.1:9876 -t Orders\n
  mqspark-duplicates -n 127.0.0.1:9876 -t Orders --by body --since 24h\n
  mqspark-duplicates -n 127.0.0.1:9876 -t Orders --by mark --json | jq .extraMessages\n
  mqspark-duplicates --store /data/store -t Orders --by property:orderId --where "tags = 'paid'"\n
"""

duplicates = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@duplicates.command(help=HELP)
def _duplicates(
    topic: Topic,
    name_server: Source = None,
    store: Store = None,
    archive: Archive = None,
    by: Annotated[str, typer.Option("--by", metavar="VALUE", help=BY_HELP)] = "key",
    since: Since = None,
    until: Until = None,
    where: Where = None,
    top: Top = 10,
    as_json: AsJson = False,
    given: Given = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    with reporting(NAME):
        selection = selection_of(
            topic, name_server=name_server, store=store, archive=archive, since=since, until=until, given=given
        )
        check_value(by)
        check(selection)
        spark = started(f"{NAME} {topic}", SETTINGS | key_values(conf or []), master)
        with progress_bar(spark, "comparing messages"):
            summary = summarize(messages(spark, selection, where), topic, by, top)
        if as_json:
            print_json(summary)
        else:
            print_tables(heading(summary), tables(summary))


def heading(summary: DuplicatesSummary) -> str:
    """Return the counts as one line."""
    return (
        f"{summary.topic} by {summary.by}: {summary.messages:,} messages, {summary.values:,} values, "
        f"{summary.duplicated_values:,} of them repeated by {summary.extra_messages:,} messages"
    )


def tables(summary: DuplicatesSummary) -> Iterator[Table]:
    """Yield the distances, the values, and their places."""
    if not summary.duplicated_values:
        return
    yield table(
        "Time since the previous message", ("time", "messages"), [(d.gap, d.messages) for d in summary.distances]
    )
    rows = [
        (found.value, found.messages, "same" if found.same_body else "different", *gaps(found)) for found in summary.top
    ]
    yield table("Values with the most messages", ("value", "messages", "bodies", "shortest", "longest"), rows)
    places = [
        (
            found.value,
            place.broker_name,
            place.queue_id,
            place.queue_offset,
            short_time(place.stored_at),
            duration_of(place.gap_ms),
        )
        for found in summary.top
        for place in found.places
    ]
    yield table("Their first messages", ("value", "broker", "queue", "offset", "stored", "after"), places)


def gaps(found: Duplicated) -> tuple[str, str]:
    """Return the shortest and the longest time between two successive messages."""
    return duration_of(found.shortest_gap_ms), duration_of(found.longest_gap_ms)


def duration_of(ms: int | None) -> str:
    """Return ms as text."""
    return duration(None if ms is None else ms / 1000)


def main() -> None:
    """Run the command."""
    duplicates()


if __name__ == "__main__":
    main()
