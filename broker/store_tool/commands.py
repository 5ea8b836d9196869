"""`mqbroker store`: inspect and repair a store directory.

    verify   check every invariant; print each finding as a line on stdout
    dump     print records as a table, or as JSON lines
    repair   rebuild queues and index from the log
    backup   copy the store of a running broker, or bring a copy up to date
    restore  make a store from a backup, up to its end or to an earlier record

Exit codes: 0 no damage (warnings and notes are possible), 1 damage, 2 not done: a wrong argument, no store, a running
broker, a full disk. Progress goes to stderr, and only to a terminal, so that stdout can be piped.

This module is imported when one of its commands runs: the daemon starts without rich.
"""

import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from skylarkmq.broker.base.printable import printable, printable_json
from skylarkmq.broker.store.fsck import Severity, check
from skylarkmq.broker.store.fsck.dump import DumpedRecord, Selection
from skylarkmq.broker.store.fsck.dump import dump as records_of
from skylarkmq.broker.store.fsck.repair import repair as repaired
from skylarkmq.broker.store_tool.backup import BACKUP_HELP, RESTORE_HELP, backup, restore
from skylarkmq.broker.store_tool.command_line import (
    DAMAGED,
    NOT_DONE,
    ConfigFile,
    Pairs,
    line_of,
    one_line_on_stderr,
    progress_bar,
    settings_of,
)

ROWS_OF_A_TABLE: Final = 50
SIZES_HELP: Final = """
Segment and index sizes are detected from the files; -c and --set override them with the broker's settings. The only
other settings that are used are messageDelayLevel and messageIndexEnable.
"""

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The store directory (storePathRootDir).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]

store = typer.Typer(
    help="Inspect, repair, back up and restore a store directory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


VERIFY_HELP: Final = f"""
Check every invariant of a store: log, queues, index, checkpoint, tables. Nothing is changed; a broker may be running.

Each finding has a severity, a file, a byte offset, the problem and its consequence. Damage of a crash that the next
start repairs is a warning. Exit code 1 if anything is damaged.
{SIZES_HELP}
Examples:\n
  mqbroker store verify ./store\n
  mqbroker store verify ./store --json | jq -r .file\n
  mqbroker store verify ./store -c broker.conf\n
"""

DUMP_HELP: Final = f"""
Show the records of a store, in the order of the log: a table of the first {ROWS_OF_A_TABLE}, or all as JSON lines.

--from is a queue offset with --topic and --queue, else a byte offset of the log. Bodies are decompressed and cut at
80 characters.
{SIZES_HELP}
Examples:\n
  mqbroker store dump ./store\n
  mqbroker store dump ./store --topic Orders --queue 0 --from 1200\n
  mqbroker store dump ./store --topic Orders --json | jq -r .keys\n
"""

REPAIR_HELP: Final = f"""
Rebuild queues and index from the log, which is not changed. The old files are kept beside the new ones. No broker may
be running.

Damage of the log itself cannot be repaired: it is reported, and the exit code is 1.
{SIZES_HELP}
Examples:\n
  mqbroker store repair ./store\n
  mqbroker store repair ./store --yes && mqbroker store verify ./store\n
"""


@store.command(help=VERIFY_HELP, short_help="Check every invariant; exit code 1 on damage.")
def verify(directory: Directory, config: ConfigFile = None, pairs: Pairs = None, as_json: AsJson = False) -> None:
    """Print findings to stdout, a count to stderr."""
    out = Console(highlight=False, soft_wrap=True)
    counts: Counter[Severity] = Counter()
    with one_line_on_stderr("verify"), progress_bar() as progress:
        settings = settings_of(directory, config, pairs or [])
        findings = check(
            directory,
            settings.sizes,
            delay_levels=settings.delay_levels,
            is_indexed=settings.is_indexed,
            progress=progress,
        )
        for finding in findings:
            counts[finding.severity] += 1
            if as_json:
                typer.echo(printable_json(msgspec.json.encode(finding)))
            else:
                out.print(line_of(finding))
    summary = ", ".join(f"{counts[severity]} {severity.value}" for severity in Severity if counts[severity])
    typer.echo(f"{directory}: {summary or 'clean'}", err=True)
    if counts[Severity.DAMAGE]:
        raise typer.Exit(DAMAGED)


@store.command(help=DUMP_HELP, short_help="Show records.")
def dump(
    directory: Directory,
    topic: Annotated[str | None, typer.Option(help="Only records of this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only records of this queue.")] = None,
    first: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="The first record.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of records.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    pairs: Pairs = None,
) -> None:
    """Print records to stdout."""
    with one_line_on_stderr("dump"):
        settings = settings_of(directory, config, pairs or [])
        found = records_of(directory, Selection(topic=topic, queue_id=queue, first=first), settings.sizes)
        if as_json:
            for shown in islice(found, limit):
                typer.echo(printable_json(msgspec.json.encode(shown)))
            return
        rows = list(islice(found, limit or ROWS_OF_A_TABLE))
        Console().print(table_of(rows))
        if limit is None and next(found, None) is not None:
            typer.echo(f"the first {ROWS_OF_A_TABLE}; more by --limit, --from, or --json", err=True)


@store.command(help=REPAIR_HELP, short_help="Rebuild queues and index.")
def repair(
    directory: Directory,
    config: ConfigFile = None,
    pairs: Pairs = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Print what was built, and damage of the log, to stdout."""
    with one_line_on_stderr("repair"):
        settings = settings_of(directory, config, pairs or [])
    if not yes and not agreed(f"Rebuild the queues and the index of {directory} from its log?"):
        raise typer.Exit(NOT_DONE)
    with one_line_on_stderr("repair"), progress_bar() as progress:
        done = repaired(
            directory,
            settings.sizes,
            delay_levels=settings.delay_levels,
            now_ms=time.time_ns() // 1_000_000,
            progress=progress,
        )
    for finding in done.damage:
        Console(highlight=False, soft_wrap=True).print(line_of(finding))
    typer.echo(f"{done.records} records: {done.queues} queues, {done.index_files} index files built")
    for name in done.kept:
        typer.echo(f"kept: {directory / name}")
    if done.damage:
        raise typer.Exit(DAMAGED)


store.command(help=BACKUP_HELP, short_help="Copy the store of a running broker.")(backup)
store.command(help=RESTORE_HELP, short_help="Make a store from a backup.")(restore)


# Arguments.


def agreed(question: str) -> bool:
    """Ask for confirmation; return False without a terminal."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


# Output.


def table_of(rows: list[DumpedRecord]) -> Table:
    """Return records in columns; topic, keys and body are shortened on a narrow terminal."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for heading in ("offset", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("queue", overflow="ellipsis", no_wrap=True, ratio=2)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("stored", no_wrap=True)
    for heading, ratio in (("tags", 1), ("keys", 1), ("body", 3)):
        table.add_column(heading, overflow="ellipsis", no_wrap=True, ratio=ratio)
    for row in rows:
        stored = (
            time.strftime("%m-%d %H:%M:%S", time.localtime(row.store_time / 1000)) + f".{row.store_time % 1000:03d}"
        )
        cells = (f"{row.topic}/{row.queue_id}", str(row.queue_offset), stored, row.tags, row.keys or row.uniq_key)
        texts = [str(row.physical_offset), str(row.size), *(printable(cell or "") for cell in cells)]
        texts.append(on_one_line(row.body))
        table.add_row(*map(Text, texts))
    return table


def on_one_line(text: str) -> str:
    """Return the beginning of a body, with a dot for each character that is not printable."""
    return "".join(character if character.isprintable() else "·" for character in text)
