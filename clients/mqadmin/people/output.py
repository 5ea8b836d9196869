"""How results are printed: tables that fit the terminal, or JSON; once, or again every few seconds.

    class GroupLag(Result, frozen=True, kw_only=True):
        group: Annotated[str, Meta(description="name")]

        def tables(self) -> Iterator[Rows]: ...

    await show(lambda: read(admin, group), as_json=as_json, watch=watch)

In a terminal, long texts are folded. A table that is still too wide becomes a block of lines for each row, so no name
is cut. Without a terminal every row is one line of any width, without colors. Times are local in tables, UTC in JSON.
"""

import sys
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
import typer
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from skylarkmq.clients.mqadmin.commands import repeated
from skylarkmq.clients.mqadmin.failures import CommandFailed, write_failure
from skylarkmq.clients.sdk.base.errors import ClientError, escaped
from skylarkmq.clients.terminal.printed_output import Summary, cell, print_json, table, utc

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Watch = Annotated[
    float | None,
    typer.Option("--watch", metavar="[SECONDS]", min=0.1, help="Repeat until Ctrl-C. Default pause: 2 seconds."),
]
WATCH: Final = "--watch"
DEFAULT_WATCH: Final = "2"
UNLIMITED_WIDTH: Final = 1_000_000
"""Characters of a line without a terminal."""
_LEAST_TEXT_WIDTH: Final = 16
"""Characters of a folded text; if a column gets less, the rows are printed as blocks."""
_GAP: Final = 2


class Rows(NamedTuple):
    """A table. `empty`: the line that is printed if it has no rows; without it, such a table is left out.

    Without columns the heading is a line of its own.
    """

    heading: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    empty: str = ""


class Result(Summary, frozen=True, kw_only=True):
    """Base of the structs that commands print. Their fields are the schema of `--json`."""

    @abstractmethod
    def tables(self) -> Iterator[Rows]:
        """Yield the tables for people."""


R = TypeVar("R", bound=Result)


def with_default_watch(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which a `--watch` without a number has the default one."""
    found: list[str] = []
    for at, argument in enumerate(arguments):
        found.append(argument)
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        if argument == WATCH and not following.replace(".", "", 1).isdecimal():
            found.append(DEFAULT_WATCH)
    return found


async def show(read: Callable[[], Awaitable[R]], *, as_json: bool, watch: float | None = None) -> R:
    """Print a result and return it; with `watch` print it again after each pause of that many seconds.

    The first reading must succeed. A later failure, for example while a broker restarts, is a line on stderr.
    """
    result: R | None = None
    async for _ in repeated(watch):
        try:
            result = await read()
        except (CommandFailed, ClientError) as error:
            if result is None:
                raise
            write_failure(error)
            continue
        if watch is None:
            print_result(result, as_json=as_json)
        else:
            _print_watched(result, watch, as_json=as_json)
    assert result is not None  # `repeated` yields at least once
    return result


def _print_watched(result: Result, pause_s: float, *, as_json: bool) -> None:
    """Print a result: as one line if it is JSON, else as tables on a cleared terminal."""
    if as_json:
        typer.echo(msgspec.json.encode(result))
    else:
        console = output_console()
        if console.is_terminal:
            console.clear()
            console.print(f"Every {pause_s:g} s, {datetime.now().astimezone():%H:%M:%S}. Stop: Ctrl-C.\n")
        print_rows(console, result.tables())
        console.print()
    sys.stdout.flush()


def print_result(result: Result, *, as_json: bool) -> None:
    """Print a result once."""
    if as_json:
        print_json(result)
    else:
        print_rows(output_console(), result.tables())


def output_console() -> Console:
    """Return the console of stdout: as wide as the terminal, or without one as wide as the longest row."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(markup=False, highlight=False, emoji=False, width=UNLIMITED_WIDTH, no_color=True)


def print_rows(console: Console, tables: Iterator[Rows]) -> None:
    """Print tables, with a blank line between two."""
    is_first = True
    for each in tables:
        if each.columns and not each.rows and not each.empty:
            continue
        if not is_first:
            console.print()
        is_first = False
        if each.heading:
            console.print(escaped(each.heading), style="bold" if each.columns else None, soft_wrap=True)
        if not each.rows:
            if each.empty:
                console.print(escaped(each.empty), soft_wrap=True)
            continue
        _print_table(console, each)


def _print_table(console: Console, rows: Rows) -> None:
    """Print rows as lines if they fit, else with folded texts, else as blocks. Rich alone takes 4 ms for each row."""
    texts = [[cell(value) for value in row] for row in rows.rows]
    numbers = [all(isinstance(row[at], int | float | None) for row in rows.rows) for at in range(len(rows.columns))]
    columns = list(zip(rows.columns, *texts, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [
        width if is_number else min(width, max(_LEAST_TEXT_WIDTH, cell_len(column[0])))
        for column, width, is_number in zip(columns, widths, numbers, strict=True)
    ]
    gaps = _GAP * (len(columns) - 1)
    if sum(widths) + gaps <= console.width:
        heads, *lines = (_line(row, widths, numbers) for row in (rows.columns, *texts))
        console.print(heads, style="bold", soft_wrap=True)
        console.file.writelines(f"{line}\n" for line in lines)
    elif sum(least) + gaps <= console.width:
        made = table("", rows.columns, rows.rows)
        made.title = None
        console.print(made)
    else:
        console.file.writelines(f"{line}\n" for line in _block_lines(rows.columns, texts, console.width))


def _line(texts: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    """Return the texts in columns, numbers to the right."""
    padded = []
    for text, width, is_number in zip(texts, widths, numbers, strict=True):
        padding = " " * (width - cell_len(text))
        padded.append(padding + text if is_number else text + padding)
    return (" " * _GAP).join(padded).rstrip()


def _block_lines(names: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield a line for each value with its name, in lines of at most `width` characters."""
    longest = max(map(len, names))
    for number, row in enumerate(texts):
        if number:
            yield ""
        for name, text in zip(names, row, strict=True):
            yield from chop_cells(f"{name:<{longest}}  {text}", width)


def time_text(ms: int | None) -> str | None:
    """Return a local time for a table, `2024-05-01 13:00:00`; None for 0, and for a time that cannot be shown."""
    if not ms or ms < 0:
        return None
    try:
        return f"{datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return None


def utc_text(ms: int | None) -> str | None:
    """Return a UTC time for JSON; None for 0, and for a time that cannot be shown."""
    return utc(ms) if ms and ms > 0 else None


def progress_bar() -> Progress:
    """Return a bar on stderr. It shows nothing if stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr if that is a terminal; the yielded function advances it by one."""
    with progress_bar() as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)
