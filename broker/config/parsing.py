"""Settings: from an operator's texts to checked values, without access to files, the clock or the environment.

Sources, from weakest to strongest; a stronger one overrides a weaker one, per key:

    default           the default of the struct's field
    properties file   Java's format (`broker/config/java_properties.py`). Spaces around a value are dropped.
    environment       `SKYLARK_` + the key; case, `_` and `.` do not matter:
                      SKYLARK_LISTEN_PORT, SKYLARK_listenPort. NAMESRV_ADDR is RocketMQ's own, for `namesrvAddr`.
                      With `_FILE` at its end the variable names a file with the value: SKYLARK_LISTEN_PORT_FILE.
    flags             `--set key=value`, and the flags that stand for a key

Every key belongs to one of four classes; a `Catalogue` is their table:

    setting    supported; an invalid value raises StartError with source, key and the expected values
    only       enables a feature that this version does not have, except for one value; other values raise StartError
    inactive   known to RocketMQ, and harmless to ignore: a note
    unknown    a warning with the most similar known key

The value of a secret setting, such as a password, is never part of a message or of printed settings. The texts of keys
that are not supported are shown, unless the key's name suggests a secret.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.java_properties import parse_properties

ENVIRONMENT_PREFIX: Final = "SKYLARK_"
NO_KEYS: Final = {"SKYLARK_COMPILED"}  # variables with this prefix that are no settings: see protocol.compiled
NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
NAMESRV_KEY: Final = "namesrvAddr"


HIDDEN: Final = "(hidden)"
FILE_SUFFIX: Final = "_FILE"
SECRET_NAME: Final = re.compile(r"secret|passw|credential|token|authenticationuser|exporterheader", re.IGNORECASE)
"""Names of keys whose values are hidden although the keys are not supported."""


class Given(NamedTuple):
    """One key as given by an operator: its text, its source ("broker.conf:12", "--set"), and the source's file."""

    key: str
    text: str
    where: str
    file: str = ""


class Secret(str):
    """A text that is never printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret()"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)


class Kind(NamedTuple):
    """The permitted values of a key: `parse` raises ValueError for all texts except those that `expected` describes."""

    expected: str
    parse: Callable[[str], Any]
    is_secret: bool = False


class Setting(NamedTuple):
    """A supported key, and the field that it sets."""

    key: str
    section: str
    field: str
    kind: Kind

    def shown(self, value: Any) -> str:
        """Return the text of a value as it is written in a file; a secret is hidden."""
        return HIDDEN if self.kind.is_secret and value else shown(value)

    def shown_text(self, text: str) -> str:
        """Return a text that was given for this key; a secret is hidden."""
        return HIDDEN if self.kind.is_secret and text else text


class Only(NamedTuple):
    """The only value that this version supports for a key, and the reason."""

    value: str
    why: str


class Catalogue(msgspec.Struct, frozen=True):
    """All known keys of one daemon."""

    settings: tuple[Setting, ...]
    only: Mapping[str, Only]
    inactive: frozenset[str]

    def known(self) -> dict[str, str]:
        """Return every known key by its spelling without case, `_` and `.`."""
        return {bare(key): key for key in (*self.inactive, *self.only, *(setting.key for setting in self.settings))}

    def nearest(self, key: str) -> str | None:
        """Return the most similar known key; None if none is similar."""
        known = self.known()
        matches = difflib.get_close_matches(bare(key), known, n=1, cutoff=0.75)
        return known[matches[0]] if matches else None


class Settled(msgspec.Struct):
    """Checked values by section and field, the source of each, and messages for the operator about other keys.

    `others`: the texts of keys that are not supported. `secret_files`: the files that contain secret settings.
    """

    sections: dict[str, dict[str, Any]]
    origins: dict[str, str]
    others: dict[str, str]
    warnings: list[str]
    notes: list[str]
    secret_files: dict[str, None]

    def put(self, setting: Setting, value: Any, where: str) -> None:
        """Set the value of a stronger source; None restores the default."""
        fields = self.sections.setdefault(setting.section, {})
        if value is None:
            fields.pop(setting.field, None)
            self.origins.pop(setting.key, None)
        else:
            fields[setting.field] = value
            self.origins[setting.key] = where

    def of(self, section: str) -> dict[str, Any]:
        """Return the fields of a section that were given."""
        return self.sections.get(section, {})


def settle(given: Iterable[Given], catalogue: Catalogue) -> Settled:
    """Check the given keys, weakest source first. Raises StartError at the first invalid value."""
    by_key = {setting.key: setting for setting in catalogue.settings}
    settled = Settled(sections={}, origins={}, others={}, warnings=[], notes=[], secret_files={})
    for key, text, where, file in given:
        if setting := by_key.get(key):
            settled.put(setting, parsed(setting, text, where), where)
            if setting.kind.is_secret and text and file:
                settled.secret_files[file] = None
        elif only := catalogue.only.get(key):
            if text.casefold() != only.value.casefold():
                raise StartError(f"{where}: {key}={text}: expected {only.value}, {only.why}")
        elif key in catalogue.inactive:
            settled.others[key] = shown_other(key, text)
            settled.notes.append(f"{where}: {key} is a key of RocketMQ that this version ignores")
        else:
            settled.others[key] = shown_other(key, text)
            nearest = catalogue.nearest(key)
            settled.warnings.append(f"{where}: unknown key {key}" + (f", did you mean {nearest}?" if nearest else ""))
    return settled


def parsed(setting: Setting, text: str, where: str) -> Any:
    """Return the value of a text. Raises StartError if it is invalid."""
    try:
        return setting.kind.parse(text)
    except ValueError:
        raise StartError(
            f"{where}: {setting.key}={setting.shown_text(text)}: expected {setting.kind.expected}"
        ) from None


def shown_other(key: str, text: str) -> str:
    """Return the text of a key that is not supported; hidden if the key's name suggests a secret."""
    return HIDDEN if text and SECRET_NAME.search(key) else text


# The sources.


def from_file(text: str, name: str) -> Iterator[Given]:
    """Yield the keys of a properties file, in order."""
    for line, key, value in parse_properties(text, name):
        yield Given(key, value.strip(), f"{name}:{line}", name)


def from_environment(
    environment: Mapping[str, str], catalogue: Catalogue, read: Callable[[str], str] = str
) -> Iterator[Given]:
    """Yield the variables that stand for a key of the catalogue, and those with the prefix but an unknown key.

    `read` returns the content of a file, for variables with `_FILE` at their end. Raises StartError if such a variable
    and the one without `_FILE` are both set.
    """
    known = catalogue.known()
    if environment.get(NAMESRV_VARIABLE) and NAMESRV_KEY in known.values():
        yield Given(NAMESRV_KEY, environment[NAMESRV_VARIABLE].strip(), f"environment {NAMESRV_VARIABLE}")
    for variable, text in sorted(environment.items()):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NO_KEYS:
            name = variable.removeprefix(ENVIRONMENT_PREFIX)
            where = f"environment {variable}"
            key = known.get(bare(name))
            in_file = None if key else known.get(bare(name.upper().removesuffix(FILE_SUFFIX)))
            if in_file is None:
                yield Given(key or name, text.strip(), where)
                continue
            for other in environment:
                if bare(other) == bare(ENVIRONMENT_PREFIX + in_file):
                    raise StartError(f"{where}: both this and {other} are set; remove one")
            yield Given(in_file, read(text).strip(), where, text)


def from_flags(pairs: Iterable[str]) -> Iterator[Given]:
    """Yield the keys of `--set` flags. Raises StartError for a flag in another format."""
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise StartError(f"--set {shown_other(pair, pair)}: expected KEY=VALUE")
        yield Given(key.strip(), text.strip(), "--set")


def bare(key: str) -> str:
    """Return a key without the parts that an environment variable cannot express: case, dots, underscores."""
    return key.replace("_", "").replace(".", "").casefold()


# Kinds of values.


def word(meanings: Mapping[str, Any]) -> Kind:
    """Return the kind of a few words, in any case, each with its meaning."""
    by_spelling = {spelling.casefold(): meaning for spelling, meaning in meanings.items()}

    def parse(text: str) -> Any:
        if text.casefold() not in by_spelling:
            raise ValueError(text)
        return by_spelling[text.casefold()]

    return Kind(" or ".join(meanings), parse)


FLAG: Final = word({"true": True, "false": False})


def choice(*values: str) -> Kind:
    """Return the kind of a few words that are their own values."""
    return word({value: value for value in values})


def whole(low: int, high: int, unit: str = "") -> Kind:
    """Return the kind of integers within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(text)
        return int(text)

    return Kind(f"a whole number from {low} to {high}" + (f" ({unit})" if unit else ""), parse)


def pattern(expected: str, expression: str) -> Kind:
    """Return the kind of texts that an expression matches completely."""
    compiled = re.compile(expression)

    def parse(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(text)
        return text

    return Kind(expected, parse)


def optional(kind: Kind) -> Kind:
    """Return the kind of values of `kind` or the empty text, which stands for the default."""
    return Kind(f"{kind.expected}, or nothing", lambda text: kind.parse(text) if text else None, kind.is_secret)


def secret(kind: Kind) -> Kind:
    """Return the kind of the same values, which are never printed."""
    return kind._replace(is_secret=True)


def several(kind: Kind, separator: str) -> Kind:
    """Return the kind of tuples of values of `kind`; empty parts are skipped."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind.parse(part.strip()) for part in text.split(separator) if part.strip())

    return Kind(f"{kind.expected}; several are separated by '{separator}'", parse)


def shown(value: Any) -> str:
    """Return the text of a value as it is written in a file."""
    if value is None:
        return ""
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ";".join(map(shown, value))
    return str(value)
