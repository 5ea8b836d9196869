"""From fastavro's values to the columns' values: members of unions, and UUIDs.

    union of several types    {"member1": value}: the column is a struct with a nullable field for each type but null,
                              as Spark's own Avro reader makes it
    uuid                      text

fastavro returns the value of a union without its type, except that it can add the names of named types (NAMES). For the
other types, the Python type of the value determines the member, because Avro allows each type once in a union. Only int
and long, and float and double, have the same Python type: in a union with others, their numbers are in the member of
long or double.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

Convert = Callable[[Any], Any]
"""Returns the column's value of a value of fastavro, which may be None. Raises KeyError, TypeError."""

NAMES: Final = {"return_record_name": True, "return_named_type": True}
"""Options of fastavro: a value of a named type in a union is the pair of the type's name and the value."""

_NULL: Final = "null"
_RECORDS: Final = frozenset({"record", "error"})
_NAMED: Final = _RECORDS | {"enum", "fixed"}
_ONE_COLUMN: Final = ({"int", "long"}, {"float", "double"})
"""Unions of two types that are one column, of the wider type."""

_KINDS: Final[Sequence[tuple[type, tuple[str, ...]]]] = (
    (bool, ("boolean",)),
    (int, ("long", "int")),
    (float, ("double", "float")),
    (str, ("string", "enum")),
    (bytes, ("bytes", "fixed")),
    (Decimal, ("decimal",)),
    (datetime, ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")),
    (date, ("date",)),
    (UUID, ("uuid",)),
    (list, ("array",)),
)
"""Python's types, and the Avro types that have such values, in the order in which they are tried."""


class Conversion(NamedTuple):
    """Options of fastavro, and the function that makes the columns' values; None: the values are as they are."""

    options: Mapping[str, Any]
    convert: Convert | None


def conversion(schema: Any, named: Mapping[str, Any]) -> Conversion:
    """Return the conversion of a schema's values; `named` has the named types, which contain no recursive record."""
    if _has_members(schema, named):
        return Conversion(NAMES, _convert(schema, named, _without_name))
    return Conversion({}, _convert(schema, named, None))


def branches(union: Sequence[Any]) -> list[Any]:
    """Return the types of a union but null."""
    return [branch for branch in union if branch != _NULL]


def is_one_column(union: Sequence[Any]) -> bool:
    """Return whether a union has one type, or numbers of two widths; else each type is a member."""
    types = branches(union)
    return len(types) == 1 or ({kind for kind in types if isinstance(kind, str)} in _ONE_COLUMN and len(types) == 2)


def inner(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of which a schema consists: its items, values or fields."""
    found = [schema.get("items"), schema.get("values"), *(field["type"] for field in schema.get("fields", ()))]
    found += [schema["type"]] if isinstance(schema["type"], dict | list) else []
    return [one for one in found if one is not None]


def _has_members(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a union of several types is anywhere in a schema."""
    if isinstance(schema, list):
        return not is_one_column(schema) or any(_has_members(branch, named) for branch in branches(schema))
    if isinstance(schema, str):
        return schema in named and _has_members(named[schema], named)
    return any(_has_members(one, named) for one in inner(schema))


def _convert(schema: Any, named: Mapping[str, Any], plain: Convert | None) -> Convert | None:
    """Return the function for a schema; `plain` is the one for values of named types."""
    if isinstance(schema, list):
        return _of_union(schema, named, plain)
    if isinstance(schema, str):
        return _convert(named[schema], named, plain) if schema in named else None
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _convert(kind, named, plain)
    if schema.get("logicalType") == "uuid":
        return _or_null(str)
    if kind == "array":
        return _of_array(_convert(schema["items"], named, plain))
    if kind == "map":
        return _of_map(_convert(schema["values"], named, plain))
    if kind in _RECORDS:
        return _of_record({each["name"]: _convert(each["type"], named, plain) for each in schema["fields"]}, plain)
    return plain if kind in _NAMED else None


def _without_name(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _of_array(item: Convert | None) -> Convert | None:
    return None if item is None else _or_null(lambda values: [item(value) for value in values])


def _of_map(item: Convert | None) -> Convert | None:
    return None if item is None else _or_null(lambda values: {key: item(value) for key, value in values.items()})


def _of_record(fields: Mapping[str, Convert | None], plain: Convert | None) -> Convert | None:
    changed = {name: convert for name, convert in fields.items() if convert is not None}
    if not changed:
        return plain

    def convert(record: Any) -> Any:
        record = record if plain is None else plain(record)
        return record | {name: change(record[name]) for name, change in changed.items()}

    return _or_null(convert)


def _of_union(union: Sequence[Any], named: Mapping[str, Any], plain: Convert | None) -> Convert | None:
    converts = [_convert(branch, named, plain) for branch in branches(union)]
    if is_one_column(union):
        return converts[0]
    members = _Members([named.get(branch, branch) if isinstance(branch, str) else branch for branch in branches(union)])

    def convert(value: Any) -> Any:
        number, value = members.of(value)
        change = converts[number]
        return {f"member{number}": value if change is None else change(value)}

    return _or_null(convert)


class _Members:
    """Finds the member of a union for a value."""

    def __init__(self, types: Sequence[Any]) -> None:
        self._kinds: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._records: list[tuple[set[str], int]] = []
        for number, schema in enumerate(types):
            kind = schema if isinstance(schema, str) else schema.get("logicalType") or schema["type"]
            self._kinds.setdefault(kind, number)
            if isinstance(schema, dict) and schema["type"] in _NAMED:
                for name in (schema["name"], *schema.get("aliases", ())):
                    self._names.setdefault(name, number)
                    self._names.setdefault(name.rpartition(".")[2], number)
            if kind in _RECORDS:
                self._records.append(({field["name"] for field in schema["fields"]}, number))

    def of(self, value: Any) -> tuple[int, Any]:
        """Return the number of the member, and the value without a name. Raises KeyError, TypeError."""
        if isinstance(value, tuple):
            name, value = value
            return self._names[name if name in self._names else name.rpartition(".")[2]], value
        if isinstance(value, dict):  # of a map, or of a writer whose schema is one of the records
            records = (number for fields, number in self._records if fields == value.keys())
            number = next(records, None)
            return self._kinds["map"] if number is None else number, value
        kinds = next((kinds for python, kinds in _KINDS if isinstance(value, python)), ())
        for kind in kinds:
            if kind in self._kinds:
                return self._kinds[kind], value
        raise TypeError(f"{type(value).__name__} is of no type in the union")
