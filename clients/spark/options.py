"""Options of a data source: rows of a table, read into a struct.

    OPTIONS = Table("rocketmq", SourceOptions, (Option("topic", "topic", "where messages go"), ...))
    read = parse(OPTIONS, spark_options)        -> SourceOptions
    markdown(OPTIONS)                           -> the table of docs/spark.md

Spark passes options as a map of texts whose names have no case. A name that no row has is refused, with the nearest one
that there is; names that Spark itself puts in are passed over. A default is the text that a user could have written, so
it goes through the same parser; without one, an absent option leaves its field as the struct has it, and a field that
the struct needs makes the option required. What must never be seen (`secret`) becomes a `Secret`, which shows itself
only when asked for its text.
"""

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""What Spark adds: a streaming sink's checkpoint and name, and the argument of `load` and `save`."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class OptionError(ValueError):
    """An option that cannot be used as it is; the text says which, why, and what would do."""


class Scope(Enum):
    """The kind of query that an option means something to."""

    BOTH = "batch and streaming"
    BATCH = "batch"
    STREAM = "streaming"


class Secret(msgspec.Struct, frozen=True):
    """A text that no log and no plan may show."""

    text: str

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__


def text(value: str) -> str:
    """Anything but nothing."""
    if not value.strip():
        raise ValueError("a text")
    return value.strip()


def flag(value: str) -> bool:
    """true or false, in any case."""
    known = {"true": True, "false": False}
    if value.strip().lower() not in known:
        raise ValueError("true or false")
    return known[value.strip().lower()]


def positive(value: str) -> int:
    """A whole number above 0."""
    if not re.fullmatch(r"\s*\+?\d+\s*", value) or int(value) < 1:
        raise ValueError("a whole number above 0")
    return int(value)


def count(value: str) -> int:
    """A whole number, 0 included."""
    if not re.fullmatch(r"\s*\+?\d+\s*", value):
        raise ValueError("a whole number, 0 or more")
    return int(value)


_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(value: str) -> int:
    """`500ms`, `30s`, `15m`, `2h`, `1d`; a bare number is milliseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|min|m|h|d)?\s*", value)
    if found is None:
        raise ValueError("a time such as 500ms, 30s, 15m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def secret(value: str) -> Secret:
    """A text that is kept from view."""
    return Secret(value)


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words, in any case; given as it stands here."""

    def parse(value: str) -> str:
        for choice in choices:
            if value.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"one of {', '.join(choices)}")

    return parse


class Option(msgspec.Struct, frozen=True):
    """A row: the option's name, the struct's field, what it means.

    `parse` raises ValueError with what it wanted instead; `default` is a text for it. `shown` stands in the table of
    the documentation where the default is a rule and no value.
    """

    name: str
    field: str
    meaning: str
    parse: Callable[[str], Any] = text
    default: str | None = None
    aliases: tuple[str, ...] = ()
    scope: Scope = Scope.BOTH
    shown: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which it may be given."""
        return (self.name, *self.aliases)


class Table(Generic[T]):
    """The options of a format, and the struct that they become."""

    def __init__(self, of: str, into: type[T], rows: Iterable[Option], passed_over: Iterable[str] = SPARKS_OWN) -> None:
        self.of = of
        self.into = into
        self.rows = tuple(rows)
        self.passed_over = frozenset(name.lower() for name in passed_over)
        self.by_name = {name.lower(): row for row in self.rows for name in row.names}
        fields = {field.name: field for field in msgspec.structs.fields(into)}  # type: ignore[arg-type]
        self.required = tuple(row for row in self.rows if row.default is None and fields[row.field].required)

    def __repr__(self) -> str:
        return f"<Table {self.of} of {len(self.rows)} options>"


def parse(table: Table[T], options: Mapping[str, str]) -> T:
    """The struct that the options mean; OptionError for one unknown, given twice, missing or of a wrong kind.

    A check of the struct's own (ValueError out of its `__post_init__`) is told in the same way.
    """
    given: dict[str, Option] = {}
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name.lower() in table.passed_over:
            continue
        row = _row(table, name)
        if row.field in given:
            raise OptionError(f"{table.of}: {row.name} is given twice: {', '.join(row.names)} are one option")
        given[row.field] = row
        values[row.field] = _value(table, row, value)
    for row in table.rows:
        if row.field not in given and row.default is not None:
            values[row.field] = _value(table, row, row.default)
    missing = [row.name for row in table.required if row.field not in given]
    if missing:
        raise OptionError(f"{table.of}: {missing[0]} is required: {_row(table, missing[0]).meaning}")
    try:
        return table.into(**values)
    except ValueError as error:
        raise OptionError(f"{table.of}: {error}") from error


def warn_out_of_scope(table: Table[Any], options: Iterable[str], scope: Scope) -> list[str]:
    """The given options that mean nothing to a query of this scope; they are logged, and have no effect."""
    rows = [table.by_name[name.lower()] for name in options if name.lower() in table.by_name]
    idle = sorted(row.name for row in rows if row.scope not in (Scope.BOTH, scope))
    for name in idle:
        log.warning("option has no effect on a %s query format=%s option=%s", scope.value, table.of, name)
    return idle


def markdown(table: Table[Any]) -> str:
    """The table of the documentation: option, meaning, default."""
    lines = ["| Option | Meaning | Default |", "|---|---|---|"]
    return "\n".join([*lines, *(_documented(table, row) for row in table.rows)]) + "\n"


def _row(table: Table[Any], name: str) -> Option:
    row = table.by_name.get(name.lower())
    if row is not None:
        return row
    near = difflib.get_close_matches(name.lower(), table.by_name, n=1, cutoff=0.5)
    hint = (
        f"did you mean {_spelled(table.by_name[near[0]], near[0])}?" if near else "see docs/spark.md for all of them."
    )
    raise OptionError(f"{table.of} has no option {name}: {hint}")


def _spelled(row: Option, lower: str) -> str:
    return next(name for name in row.names if name.lower() == lower)


def _value(table: Table[Any], row: Option, value: str) -> Any:
    try:
        return row.parse(value)
    except ValueError as error:
        shown = "its value" if row.parse is secret else repr(value)
        raise OptionError(f"{table.of}: {row.name} must be {error}, not {shown}") from None


def _documented(table: Table[Any], row: Option) -> str:
    names = f"`{row.name}`" + "".join(f", `{alias}`" for alias in row.aliases)
    only = "" if row.scope is Scope.BOTH else f" ({row.scope.value} only)"
    default = row.shown or (f"`{row.default}`" if row.default is not None else "")
    if row in table.required:
        default = "required"
    meaning = row.meaning.replace("|", "\\|")
    return f"| {names} | {meaning}{only} | {default or 'none'} |"
