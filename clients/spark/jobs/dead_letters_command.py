"""The command `mqspark-dead-letters`: the dead letters of a consumer group or a pipeline, in groups with samples.

Exit codes: 0 done; 1 failed; 2 not started.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.table import Table

from skylarkmq.clients.spark.command_line import Conf, Given, Master, NotStarted, key_values, reporting
from skylarkmq.clients.spark.jobs import dead_letters
from skylarkmq.clients.spark.jobs.arguments import (
    SETTINGS,
    Archive,
    AsJson,
    Since,
    Source,
    Store,
    Top,
    Until,
    Where,
    time_ms,
)
from skylarkmq.clients.spark.jobs.dead_letters import BY_HELP, DeadLettersSummary, check_grouping, picked, summarize
from skylarkmq.clients.spark.jobs.messages import Selection, check, messages
from skylarkmq.clients.spark.jobs.messages import where as where_sql
from skylarkmq.clients.spark.jobs.output import print_json, print_tables, table
from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.spark.session import started
from skylarkmq.protocol.codes import DLQ_PREFIX

NAME: Final = "mqspark-dead-letters"
HELP: Final = """
Group dead letters by reason, key, tag, topic or a property, and show samples of each group.

--where and --pick select letters: by a condition on their columns, and by the names of groups.

Examples:\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing --by property:exception --since 24h\n
  mqspark-dead-letters -n 127.0.0.1:9876 -t Orders-dead --pick "the field id is missing" --samples 10\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing --where "originTopic = 'Orders' AND tags = 'paid'" --json\n
"""

letters = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Group = Annotated[str | None, typer.Option("--group", help="The consumer group whose dead letters are read.")]
LetterTopic = Annotated[
    str | None, typer.Option("-t", "--topic", help="Instead of --group: the topic of dead letters, of a pipeline.")
]
By = Annotated[str, typer.Option("--by", metavar="VALUE", help=BY_HELP)]
Pick = Annotated[
    list[str] | None, typer.Option("--pick", metavar="GROUP", help="Only the letters of this group; repeatable.")
]
Samples = Annotated[int, typer.Option("--samples", min=0, max=100, help="Letters shown of each group.")]


@letters.command(help=HELP)
def _dead_letters(
    name_server: Source = None,
    store: Store = None,
    archive: Archive = None,
    group: Group = None,
    topic: LetterTopic = None,
    by: By = "reason",
    since: Since = None,
    until: Until = None,
    where: Where = None,
    pick: Pick = None,
    samples: Samples = 3,
    top: Top = 20,
    as_json: AsJson = False,
    given: Given = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    with reporting(NAME):
        check_grouping(by)
        name = topic_of(group, topic)
        selection = Selection(
            topic=name,
            name_server=name_server,
            store=store,
            archive=archive,
            since_ms=time_ms(since, "--since"),
            until_ms=time_ms(until, "--until"),
            options=key_values(given or []),
        )
        check(selection, None if group is None else f"group {group} has no dead letters.")
        spark = started(f"{NAME} {name}", SETTINGS | key_values(conf or []), master)
        rows = dead_letters.letters(messages(spark, selection), by)
        chosen = picked(rows if where is None else where_sql(rows, where), pick or [])
        with progress_bar(spark, "reading dead letters"):
            summary = summarize(chosen, name, by, top=top, samples=samples)
        if as_json:
            print_json(summary)
        else:
            print_tables(heading(summary), tables(summary))


def topic_of(group: str | None, topic: str | None) -> str:
    """Return the dead-letter topic. Raises NotStarted unless one of the two is given."""
    if (group is None) == (topic is None):
        raise NotStarted("give --group GROUP, or --topic TOPIC for the dead letters of a pipeline")
    return topic or f"{DLQ_PREFIX}{group}"


def heading(summary: DeadLettersSummary) -> str:
    """Return the counts as one line."""
    return f"{summary.topic} by {summary.by}: {summary.letters:,} dead letters in {summary.group_count:,} groups"


def tables(summary: DeadLettersSummary) -> Iterator[Table]:
    """Yield the groups, and the samples of each."""
    groups = [
        (row.group, row.letters, row.first_at, row.last_at, ", ".join(row.origin_topics)) for row in summary.groups
    ]
    yield table("Groups", (summary.by, "letters", "first", "last", "from"), groups)
    for row in summary.groups:
        samples = [
            (sample.stored_at, sample.origin_topic, sample.keys, sample.deliveries, sample.reason, sample.body)
            for sample in row.samples
        ]
        yield table(row.group, ("stored", "from", "keys", "deliveries", "reason", "body"), samples)


def main() -> None:
    """Run the command."""
    letters()


if __name__ == "__main__":
    main()
