"""The part of `mqspark-dead-letters` that sends letters again: `--redrive DIRECTORY`."""

from typing import Final

import typer

from skylarkmq.clients.spark.base.cluster_options import of_cluster
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.jobs.redrive import (
    Picked,
    Redrive,
    Redriven,
    pick,
    read_picked,
    redriven,
    replay_of,
    targets_of,
    write_picked,
)
from skylarkmq.clients.spark.jobs.selected_letters import SelectedLetters
from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.spark.replay.command import CLUSTER, failing, run_with_progress
from skylarkmq.clients.spark.replay.pace import parse_rate

NAME: Final = "mqspark-dead-letters"


def send_again(letters: SelectedLetters, redrive: Redrive) -> Redriven:
    """Send the letters that were not sent before. Raises NotStarted, typer.Exit, and errors of Spark and cluster."""
    server = letters.selection.name_server
    if server is None:
        raise NotStarted("--redrive needs --name-server: mqspark-replay sends letters of a store or an archive again")
    cluster = parse(CLUSTER, {"nameServer": server} | of_cluster(letters.selection.options))
    targets_of(letters.selection.topic, redrive.to_topic)
    picked = read_picked(redrive.directory)
    if picked is None:
        picked = pick_new(letters, redrive)
    elif picked.topic != letters.selection.topic:
        raise NotStarted(f"{redrive.directory} belongs to a redrive of {picked.topic}: choose another directory")
    else:
        count = len(picked.places)
        typer.echo(
            f"{NAME}: resuming the redrive of {count:,} letters; --pick, --where and times have no effect", err=True
        )
    with failing(NAME):
        return redriven(picked, run_with_progress(replay_of(picked, cluster, redrive)))


def pick_new(letters: SelectedLetters, redrive: Redrive) -> Picked:
    """Select letters, and record them in the directory. Raises NotStarted."""
    if not letters.is_narrowed:
        raise NotStarted("--redrive needs --pick, --where, --since or --until; `--where true` selects all letters")
    spark = letters.session(NAME)
    with progress_bar(spark, "reading dead letters"):
        picked = pick(letters.read(spark), letters.selection.topic)
    write_picked(redrive.directory, picked)
    return picked


def rate_of(text: str | None) -> float | None:
    """Return letters per second. Raises NotStarted."""
    try:
        return None if text is None else parse_rate(text)
    except ValueError as error:
        raise NotStarted(f"--rate must be {error}") from None


def text_of(summary: Redriven) -> str:
    """Return the summary as text."""
    lines = [f"{summary.sent:,} of {summary.picked:,} letters sent, {summary.sent_before:,} were sent before"]
    lines += [f"  {topic}: {count:,}" for topic, count in summary.topics.items()]
    if summary.missing:
        lines.append(f"{summary.missing:,} are no longer in {summary.topic}: retention has deleted them")
    if summary.stored_twice:
        lines.append(f"{summary.stored_twice:,} are stored twice: a broker stored a request late")
    return "\n".join([*lines, f"map of offsets: {summary.map}"])
