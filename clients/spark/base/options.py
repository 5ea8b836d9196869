"""Options of a data source: the rows of a table, parsed into a struct.

    OPTIONS = Table("rocketmq", SourceOptions, (Option("topic", "topic", "target topic"), ...))
    read = parse(OPTIONS, spark_options)        -> SourceOptions
    markdown(OPTIONS)                           -> the table in docs/use/spark/sources.md

Spark passes options as a map of strings with case-insensitive names. An unknown name is an error that suggests the
nearest known name; names that Spark itself adds are ignored. A default is text, as a user would write it, and goes
through the same parser. An absent option without a default keeps the struct's default; if the struct's field has none,
the option is required. `assemble` may replace parsed values before they become the struct's fields: several options can
make one field. The struct must hide the values of `secret` options in its repr.
"""

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options that Spark adds: checkpoint and query name of a streaming sink, and the argument of `load` or `save`."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class OptionError(ValueError):
    """An option that cannot be used; the text contains the option, the reason and the accepted values."""


class Scope(Enum):
    """The kind of query for which an option has an effect."""

    BOTH = "batch and streaming"
    BATCH = "batch"
    STREAM = "streaming"


def text(value: str) -> str:
    """Return the value stripped of white space; it must not be empty."""
    if not value.strip():
        raise ValueError("a text")
    return value.strip()


def flag(value: str) -> bool:
    """Return the value of `true` or `false`, in any case."""
    known = {"true": True, "false": False}
    if value.strip().lower() not in known:
        raise ValueError("true or false")
    return known[value.strip().lower()]


def positive(value: str) -> int:
    """Return an integer above 0."""
    if not re.fullmatch(r"\s*\+?\d+\s*", value) or int(value) < 1:
        raise ValueError("a whole number above 0")
    return int(value)


def count(value: str) -> int:
    """Return an integer of 0 or more."""
    if not re.fullmatch(r"\s*\+?\d+\s*", value):
        raise ValueError("a whole number, 0 or more")
    return int(value)


_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(value: str) -> int:
    """Return milliseconds for `500ms`, `30s`, `15m`, `2h` or `1d`; a number without a unit is milliseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|min|m|h|d)?\s*", value)
    if found is None:
        raise ValueError("a time such as 500ms, 30s, 15m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def secret(value: str) -> str:
    """Return the text. Errors about an option with this parser do not contain the value."""
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser for these words in any case; it returns the spelling given here."""

    def parse(value: str) -> str:
        for choice in choices:
            if value.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"one of {', '.join(choices)}")

    return parse


class Option(msgspec.Struct, frozen=True):
    """One row of the table: the option's name, the struct's field and its meaning.

    `parse` raises ValueError whose text describes the accepted values. `default` is text for `parse`. The
    documentation shows `shown` instead of the default, for defaults that are rules.
    """

    name: str
    field: str
    meaning: str
    parse: Callable[[str], Any] = text
    default: str | None = None
    aliases: tuple[str, ...] = ()
    scope: Scope = Scope.BOTH
    default_text: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name and its aliases."""
        return (self.name, *self.aliases)


class Table(Generic[T]):
    """The options of a format, and the struct that they are parsed into."""

    def __init__(
        self,
        format_name: str,
        into: type[T],
        rows: Iterable[Option],
        ignored: Iterable[str] = SPARK_OPTIONS,
        assemble: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self.format_name = format_name
        self.into = into
        self.rows = tuple(rows)
        self.ignored = frozenset(name.lower() for name in ignored)
        self.assemble = assemble
        self.by_name = {name.lower(): row for row in self.rows for name in row.names}
        required = {field.name for field in msgspec.structs.fields(into) if field.required}  # type: ignore[arg-type]
        self.required = tuple(row for row in self.rows if row.default is None and row.field in required)

    def __repr__(self) -> str:
        return f"<Table {self.format_name} of {len(self.rows)} options>"


def parse(table: Table[T], options: Mapping[str, str]) -> T:
    """Return the struct for these options. Raises OptionError for an unknown, repeated, missing or invalid option.

    A ValueError of `assemble` or of the struct's own `__post_init__` becomes an OptionError too.
    """
    given: dict[str, Option] = {}
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name.lower() in table.ignored:
            continue
        row = _row(table, name)
        if row.field in given:
            raise OptionError(f"{table.format_name}: {row.name} is set twice: {', '.join(row.names)} are one option")
        given[row.field] = row
        values[row.field] = _value(table, row, value)
    for row in table.rows:
        if row.field not in given and row.default is not None:
            values[row.field] = _value(table, row, row.default)
    missing = [row.name for row in table.required if row.field not in given]
    if missing:
        raise OptionError(f"{table.format_name}: {missing[0]} is required: {_row(table, missing[0]).meaning}")
    try:
        return table.into(**table.assemble(values))
    except ValueError as error:
        raise OptionError(f"{table.format_name}: {error}") from error


def warn_out_of_scope(table: Table[Any], options: Iterable[str], scope: Scope) -> list[str]:
    """Return the given options that have no effect on a query of this scope; each one is logged."""
    rows = [table.by_name[name.lower()] for name in options if name.lower() in table.by_name]
    idle = sorted(row.name for row in rows if row.scope not in (Scope.BOTH, scope))
    for name in idle:
        log.warning("option has no effect on a %s query format=%s option=%s", scope.value, table.format_name, name)
    return idle


def markdown(table: Table[Any]) -> str:
    """Return the Markdown table for the documentation: option, meaning, default."""
    lines = ["| Option | Meaning | Default |", "|---|---|---|"]
    return "\n".join([*lines, *(_documented(table, row) for row in table.rows)]) + "\n"


def _row(table: Table[Any], name: str) -> Option:
    row = table.by_name.get(name.lower())
    if row is not None:
        return row
    near = difflib.get_close_matches(name.lower(), table.by_name, n=1, cutoff=0.5)
    hint = (
        f"did you mean {_spelled(table.by_name[near[0]], near[0])}?"
        if near
        else "see docs/use/spark/sources.md for all options."
    )
    raise OptionError(f"{table.format_name} has no option {name}: {hint}")


def _spelled(row: Option, lower: str) -> str:
    return next(name for name in row.names if name.lower() == lower)


def _value(table: Table[Any], row: Option, value: str) -> Any:
    try:
        return row.parse(value)
    except ValueError as error:
        shown = "its value" if row.parse is secret else repr(value)
        raise OptionError(f"{table.format_name}: {row.name} must be {error}, not {shown}") from None


def _documented(table: Table[Any], row: Option) -> str:
    names = f"`{row.name}`" + "".join(f", `{alias}`" for alias in row.aliases)
    only = "" if row.scope is Scope.BOTH else f" ({row.scope.value} only)"
    default = row.default_text or (f"`{row.default}`" if row.default is not None else "")
    if row in table.required:
        default = "required"
    meaning = row.meaning.replace("|", "\\|")
    return f"| {names} | {meaning}{only} | {default or 'none'} |"
