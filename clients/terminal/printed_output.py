"""The output of command lines: tables for a terminal, or a summary as JSON.

Texts of messages can contain anything. Control characters are printed escaped, so they cannot change the terminal.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from skylarkmq.clients.sdk.base.errors import escaped

NONE: Final = "-"
PREVIEW_CHARACTERS: Final = 80


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the structs that `--json` prints. Fields are annotated with their meaning; docs list them."""


def print_json(summary: Summary) -> None:
    """Print the summary to stdout."""
    typer.echo(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())


def print_tables(heading: str, tables: Iterable[Table]) -> None:
    """Print a line and the tables to stdout; tables without rows are omitted."""
    console = Console(markup=False, highlight=False)
    console.print(heading)
    for table in tables:
        if table.row_count:
            console.print()
            console.print(table)


def table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table. Numbers are right-aligned, with thousands separators; None is shown as `-`. Texts are folded."""
    made = Table(title=escaped(heading), title_justify="left", box=None, pad_edge=False, header_style="bold")
    filled = [list(row) for row in rows]
    for at, name in enumerate(columns):
        is_number = all(isinstance(row[at], int | float | None) for row in filled)
        made.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in filled:
        made.add_row(*map(cell, row))
    return made


def cell(value: Any) -> str:
    """Return a value as `table` shows it."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else escaped(str(value))


def preview(body: bytes | None) -> str:
    """Return the beginning of a body as text."""
    if body is None:
        return NONE
    text = body[: 4 * PREVIEW_CHARACTERS].decode("utf-8", "backslashreplace")
    return text if len(text) <= PREVIEW_CHARACTERS else f"{text[: PREVIEW_CHARACTERS - 1]}…"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `1,234 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def utc(ms: int | None) -> str | None:
    """Return a time (ms since 1970) as `2024-05-01T13:00:00.123Z`; None for None, and for a year beyond 1 to 9999."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def short_time(text: str | None) -> str | None:
    """Return a time of `utc` for a table, without its milliseconds: `05-01 13:00:00`."""
    return None if text is None else text[5:19].replace("T", " ")


def duration(seconds: float | None) -> str:
    """Return a duration with its two largest units: `350 ms`, `12.5 s`, `3 m 20 s`, `2 h 5 m`, `4 d 3 h`."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} {seconds % unit // part:.0f} {part_name}"
    raise AssertionError(seconds)


def fields_table(kind: type[msgspec.Struct]) -> str:
    """Return the Markdown table of a summary's fields for the documentation: the name in JSON, type and meaning."""
    lines = ["| Field | Type | Meaning |", "|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        annotation = msgspec.inspect.type_info(field.type)
        meaning = (
            (annotation.extra_json_schema or {}).get("description")
            if isinstance(annotation, msgspec.inspect.Metadata)
            else None
        )
        lines.append(f"| `{field.encode_name}` | {_type_name(annotation)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _type_name(annotation: Any) -> str:
    inner = annotation.type if isinstance(annotation, msgspec.inspect.Metadata) else annotation
    if isinstance(inner, msgspec.inspect.UnionType):
        return " or ".join(_type_name(part) for part in inner.types)
    if isinstance(inner, msgspec.inspect.ListType):
        return f"list of {_type_name(inner.item_type)}"
    if isinstance(inner, msgspec.inspect.DictType):
        return f"map from {_type_name(inner.key_type)} to {_type_name(inner.value_type)}"
    if isinstance(inner, msgspec.inspect.StructType):
        return inner.cls.__name__
    return {"StrType": "text", "IntType": "integer", "FloatType": "number", "BoolType": "boolean", "NoneType": "null"}[
        type(inner).__name__
    ]
