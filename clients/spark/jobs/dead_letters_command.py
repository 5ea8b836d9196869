"""The command `mqspark-dead-letters`: the dead letters of a consumer group or a pipeline, in groups with samples.

`--redrive` sends the selected ones again (redrive.py).

Exit codes: 0 done; 1 failed, or a letter to be sent again is missing or stored twice; 2 not started.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from skylarkmq.clients.spark.command_line import FAILED, Conf, Given, Master, NotStarted, key_values, reporting
from skylarkmq.clients.spark.jobs.arguments import (
    Archive,
    AsJson,
    Since,
    Source,
    Store,
    Top,
    Until,
    Where,
    selection_of,
)
from skylarkmq.clients.spark.jobs.dead_letters import BY_HELP, DeadLettersSummary, check_grouping, summarize
from skylarkmq.clients.spark.jobs.messages import check
from skylarkmq.clients.spark.jobs.redrive import Redrive, Redriven
from skylarkmq.clients.spark.jobs.redrive_command import NAME, rate_of, send_again, text_of
from skylarkmq.clients.spark.jobs.selected_letters import SelectedLetters
from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.terminal.printed_output import print_json, print_tables, short_time, table
from skylarkmq.protocol.codes import DLQ_PREFIX

HELP: Final = """
Group dead letters by reason, key, tag, topic or a property, and show samples of each group.

--where and --pick select letters: by a condition on their columns, and by the names of groups. --redrive sends the
selected letters again, each once, to the topics that they came from: all consumer groups of these topics receive them.
The same command resumes a redrive after any interruption.

Examples:\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing --by property:exception --since 24h\n
  mqspark-dead-letters -n 127.0.0.1:9876 -t Orders-dead --pick "the field id is missing" --samples 10\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing --where "originTopic = 'Orders' AND tags = 'paid'" --json\n
  mqspark-dead-letters -n 127.0.0.1:9876 --group billing --by tag --pick paid --redrive redrive-1 --rate 100/s\n
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

RedriveTo = Annotated[
    Path | None, typer.Option("--redrive", metavar="DIR", help="Send the letters again; DIR keeps the state.")
]
ToTopic = Annotated[
    str | None, typer.Option("--to-topic", help="With --redrive: send all letters to this topic instead.")
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N/s", help="With --redrive: maximum rate, such as 100/s or 600/min.")
]


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
    redrive: RedriveTo = None,
    to_topic: ToTopic = None,
    rate: Rate = None,
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
        selection = selection_of(
            name, name_server=name_server, store=store, archive=archive, since=since, until=until, given=given
        )
        check(selection, None if group is None else f"group {group} has no dead letters.")
        chosen = SelectedLetters(
            selection=selection,
            by=by,
            pick=tuple(pick or ()),
            condition=where,
            conf=key_values(conf or []),
            master=master,
        )
        if redrive is not None:
            raise typer.Exit(
                print_redriven(send_again(chosen, Redrive(redrive, to_topic, rate_of(rate))), as_json=as_json)
            )
        if to_topic is not None or rate is not None:
            raise NotStarted("--to-topic and --rate need --redrive DIR")
        spark = chosen.session(NAME)
        with progress_bar(spark, "reading dead letters"):
            summary = summarize(chosen.read(spark), name, by, top=top, samples=samples)
        if as_json:
            print_json(summary)
        else:
            print_tables(heading(summary), tables(summary))


def print_redriven(summary: Redriven, *, as_json: bool) -> int:
    """Print the summary of a redrive; return the exit code."""
    if as_json:
        print_json(summary)
    else:
        typer.echo(text_of(summary))
    return FAILED if summary.missing or summary.stored_twice else 0


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
        (row.group, row.letters, short_time(row.first_at), short_time(row.last_at), ", ".join(row.origin_topics))
        for row in summary.groups
    ]
    yield table("Groups", (summary.by, "letters", "first", "last", "from"), groups)
    for row in summary.groups:
        samples = [
            (
                short_time(sample.stored_at),
                sample.origin_topic,
                sample.keys,
                sample.deliveries,
                sample.reason,
                sample.body,
            )
            for sample in row.samples
        ]
        yield table(row.group, ("stored", "from", "keys", "deliveries", "reason", "body"), samples)


def main() -> None:
    """Run the command."""
    letters()


if __name__ == "__main__":
    main()
