"""Settings: from what an operator wrote to checked values, with no look at files, the clock or the environment.

Sources, from weakest to strongest; a later one wins, key by key:

    default           the field of the struct in which the value will stand
    properties file   Java's format (`broker/config/java_properties.py`). Spaces around a value are dropped.
    environment       `SKYLARK_` + the key in any spelling that differs in case, `_` and `.` only:
                      SKYLARK_LISTEN_PORT, SKYLARK_listenPort. NAMESRV_ADDR is RocketMQ's own, for `namesrvAddr`.
    flags             `--set key=value`, and the flags that stand for a key

Every key falls into one of four classes, and a `Catalogue` is the table of them:

    setting    acted on; a value that does not parse raises StartError with place, key and what was expected
    only       promises something that this version does not have unless it has one given value; others raise StartError
    inactive   known to RocketMQ and harmless to ignore: a note
    unknown    a warning with the nearest name that is known
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from skylarkmq.broker.config.java_properties import parse_properties
from skylarkmq.broker.errors import StartError

ENVIRONMENT_PREFIX: Final = "SKYLARK_"
NO_KEYS: Final = {"SKYLARK_COMPILED"}  # variables that begin so and are read elsewhere: protocol.compiled
NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
NAMESRV_KEY: Final = "namesrvAddr"


class Given(NamedTuple):
    """One key as an operator gave it: its text, and where to find it ("broker.conf:12", "--set")."""

    key: str
    text: str
    where: str


class Secret(str):
    """A text that nobody is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret()"


class Kind(NamedTuple):
    """What a value may be: `parse` raises ValueError for anything but what `expected` says."""

    expected: str
    parse: Callable[[str], Any]


class Setting(NamedTuple):
    """A key that is acted on, and the field in which its value stands."""

    key: str
    section: str
    field: str
    kind: Kind


class Only(NamedTuple):
    """The one value of a key that this version can honour, and why."""

    value: str
    why: str


class Catalogue(msgspec.Struct, frozen=True):
    """All keys that one daemon knows."""

    settings: tuple[Setting, ...]
    only: Mapping[str, Only]
    inactive: frozenset[str]

    def known(self) -> dict[str, str]:
        """Every known key by its spelling without case, `_` and `.`."""
        return {bare(key): key for key in (*self.inactive, *self.only, *(setting.key for setting in self.settings))}

    def nearest(self, key: str) -> str | None:
        """The known key most like this one, if any is much like it."""
        known = self.known()
        matches = difflib.get_close_matches(bare(key), known, n=1, cutoff=0.75)
        return known[matches[0]] if matches else None


class Settled(msgspec.Struct):
    """Checked values by section and field, where each came from, and what an operator should hear about the rest.

    `others`: the texts of keys that are not acted on.
    """

    sections: dict[str, dict[str, Any]]
    origins: dict[str, str]
    others: dict[str, str]
    warnings: list[str]
    notes: list[str]

    def put(self, setting: Setting, value: Any, where: str) -> None:
        """A stronger source overrides a weaker one; None takes back what that one said."""
        fields = self.sections.setdefault(setting.section, {})
        if value is None:
            fields.pop(setting.field, None)
            self.origins.pop(setting.key, None)
        else:
            fields[setting.field] = value
            self.origins[setting.key] = where

    def of(self, section: str) -> dict[str, Any]:
        """The fields of a section that were given."""
        return self.sections.get(section, {})


def settle(given: Iterable[Given], catalogue: Catalogue) -> Settled:
    """Check what was given, weakest source first. StartError at the first value that is not what its key expects."""
    by_key = {setting.key: setting for setting in catalogue.settings}
    settled = Settled(sections={}, origins={}, others={}, warnings=[], notes=[])
    for key, text, where in given:
        if setting := by_key.get(key):
            settled.put(setting, parsed(setting.kind, key, text, where), where)
        elif only := catalogue.only.get(key):
            if text.casefold() != only.value.casefold():
                raise StartError(f"{where}: {key}={text}: expected {only.value}, {only.why}")
        elif key in catalogue.inactive:
            settled.others[key] = text
            settled.notes.append(f"{where}: {key} is a key of RocketMQ that this version does not act on")
        else:
            settled.others[key] = text
            nearest = catalogue.nearest(key)
            settled.warnings.append(f"{where}: unknown key {key}" + (f", did you mean {nearest}?" if nearest else ""))
    return settled


def parsed(kind: Kind, key: str, text: str, where: str) -> Any:
    """The value of a text; StartError if it is not of this kind."""
    try:
        return kind.parse(text)
    except ValueError:
        raise StartError(f"{where}: {key}={text}: expected {kind.expected}") from None


# The sources.


def from_file(text: str, name: str) -> Iterator[Given]:
    """The keys of a properties file, in order."""
    for line, key, value in parse_properties(text, name):
        yield Given(key, value.strip(), f"{name}:{line}")


def from_environment(environment: Mapping[str, str], catalogue: Catalogue) -> Iterator[Given]:
    """The variables that stand for a key of the catalogue, or pretend to."""
    known = catalogue.known()
    if environment.get(NAMESRV_VARIABLE) and NAMESRV_KEY in known.values():
        yield Given(NAMESRV_KEY, environment[NAMESRV_VARIABLE].strip(), f"environment {NAMESRV_VARIABLE}")
    for variable, text in sorted(environment.items()):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NO_KEYS:
            name = variable.removeprefix(ENVIRONMENT_PREFIX)
            yield Given(known.get(bare(name), name), text.strip(), f"environment {variable}")


def from_flags(pairs: Iterable[str]) -> Iterator[Given]:
    """The keys of `--set` flags."""
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise StartError(f"--set {pair}: expected KEY=VALUE")
        yield Given(key.strip(), text.strip(), "--set")


def bare(key: str) -> str:
    """A key without what an environment variable cannot spell: case, dots, and underscores between words."""
    return key.replace("_", "").replace(".", "").casefold()


# Kinds of values.


def word(meanings: Mapping[str, Any]) -> Kind:
    """One of a few words, in any case, each with its meaning."""
    by_spelling = {spelling.casefold(): meaning for spelling, meaning in meanings.items()}

    def parse(text: str) -> Any:
        if text.casefold() not in by_spelling:
            raise ValueError(text)
        return by_spelling[text.casefold()]

    return Kind(" or ".join(meanings), parse)


FLAG: Final = word({"true": True, "false": False})


def choice(*values: str) -> Kind:
    """One of a few words, which stands for itself."""
    return word({value: value for value in values})


def whole(low: int, high: int, unit: str = "") -> Kind:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(text)
        return int(text)

    return Kind(f"a whole number from {low} to {high}" + (f" ({unit})" if unit else ""), parse)


def pattern(expected: str, expression: str) -> Kind:
    """A text that an expression matches whole."""
    compiled = re.compile(expression)

    def parse(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(text)
        return text

    return Kind(expected, parse)


def optional(kind: Kind) -> Kind:
    """A value of this kind, or nothing, which stands for the default."""
    return Kind(f"{kind.expected}, or nothing", lambda text: kind.parse(text) if text else None)


def several(kind: Kind, separator: str) -> Kind:
    """Values of this kind, as a tuple; empty parts are passed over."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind.parse(part.strip()) for part in text.split(separator) if part.strip())

    return Kind(f"{kind.expected}; several are separated by '{separator}'", parse)


def shown(value: Any) -> str:
    """A value as one would write it into a file."""
    if value is None:
        return ""
    if isinstance(value, Secret):
        return "(hidden)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ";".join(map(shown, value))
    return str(value)
