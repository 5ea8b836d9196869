"""The YAML files of accounts: read at the start, reloaded after a change, changed by requests.

`plain_acl.yml` in the configuration directory, and every *.yml and *.yaml below `acl` beside it. The rules are those of
all files together: the global white addresses of each, and the accounts; an account that two files define is that of
the first file, in the order `acl/…` by path, then `plain_acl.yml`. Names that begin with a dot are skipped: Kubernetes
keeps the versions of mounted files in such directories, beside links to the current one.

`poll` reads changed files. A file is read once its fingerprint is the same in two polls, so a file that is being
written is not read in the middle. A file with an error keeps its previous rules until it is corrected; at the start it
is an error. The rules always match the files: an account that is no longer in a file has no rights.

A change by request reads the file, changes its values, checks the result, and replaces the file: either all of it
happens, or nothing. New accounts go to `plain_acl.yml`. Each change counts up the file's `dataVersion`.

All methods block for the disk, and run one at a time, outside the event loop (`reloading.py`). The event loop reads
only `rules`, `problems` and `paths`, which are replaced and never changed.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from skylarkmq.broker.access.plain_acl import yaml_file
from skylarkmq.broker.access.plain_acl.accounts import Account, account_of, text_of, texts_of
from skylarkmq.broker.access.plain_acl.addresses import Address, Pattern, pattern_of
from skylarkmq.broker.access.plain_acl.errors import AclError
from skylarkmq.broker.access.plain_acl.yaml_file import Fingerprint, fingerprint_of
from skylarkmq.broker.access.secret_files import PROBLEM, is_exposed_now
from skylarkmq.broker.base.errors import StartError
from skylarkmq.protocol import javajson
from skylarkmq.protocol.decimals import INT64_MAX

DEFAULT_FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"
SUFFIXES: Final = frozenset((".yml", ".yaml"))
WHITE: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"

Values = dict[Any, Any]

log = logging.getLogger(__name__)


class Version(msgspec.Struct, frozen=True):
    """The version of a file: the number of its changes by requests, and the time of the last one in ms."""

    counter: int
    timestamp: int

    def encode(self) -> str:
        """Return the version as JSON."""
        return javajson.dumps(msgspec.structs.asdict(self)).decode()


class FileRules(msgspec.Struct, frozen=True):
    """The rules of one file. `version`: None if the file is empty."""

    white: tuple[Pattern, ...] = ()
    accounts: Mapping[str, Account] = {}
    version: Version | None = None


class Rules(msgspec.Struct, frozen=True):
    """The rules of all files. `versions`: by the path of each file that is not empty."""

    white: tuple[Pattern, ...] = ()
    accounts: Mapping[str, Account] = {}
    versions: Mapping[str, Version] = {}
    default_version: Version = Version(0, 0)  # of plain_acl.yml; 4.9's tools show it for the broker

    def __repr__(self) -> str:
        return f"<Rules accounts={len(self.accounts)} white={len(self.white)}>"

    def is_white(self, address: Address) -> bool:
        """Return whether an address is in a global list of white addresses."""
        return any(matches(address) for matches in self.white)


class _Loaded(msgspec.Struct, frozen=True):
    """A file as it was read last; `rules`: the rules of its last version without an error."""

    fingerprint: Fingerprint
    rules: FileRules
    problem: str | None = None


class AclFiles:
    """The files below one directory. `now_ms` returns Unix time, for versions. `is_strict`: a file that other users can
    read has an error (`strictSecretFiles`)."""

    def __init__(self, directory: Path, now_ms: Callable[[], int], *, is_strict: bool = False) -> None:
        self._default = directory.absolute() / DEFAULT_FILE
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._first_version = Version(0, now_ms())
        self._loaded: dict[Path, _Loaded] = {}
        self._seen: dict[Path, Fingerprint] = {}
        self.rules = Rules()
        self.problems: Mapping[Path, str] = {}
        """The error of each file that has one. A change makes a new mapping."""
        self.paths: tuple[Path, ...] = ()
        """The files that exist."""

    def __repr__(self) -> str:
        return f"<AclFiles {self._default.parent} {self.rules!r}>"

    def open(self) -> None:
        """Read all files; create `plain_acl.yml` if it is missing. Raises StartError if a file has an error."""
        try:
            yaml_file.create_if_missing(self._default)
        except OSError as error:
            raise StartError(f"{self._default}: cannot be created: {error.strerror} (aclConfigDir)") from None
        self._read_changed(self._fingerprints())
        for path, problem in self.problems.items():
            raise StartError(f"{path}: {problem}")

    def poll(self) -> bool:
        """Read the files that have changed, and have not changed since the previous poll; return whether there are
        any."""
        seen = self._fingerprints()
        is_settled, self._seen = seen == self._seen, seen
        return is_settled and self._read_changed(seen)

    # ---------------------------------------------------------------------------------------------------------- changes

    def set_account(self, change: Mapping[str, object]) -> None:
        """Create an account, or change the given members of one; `change` has at least valid keys. Raises AclError with
        RocketMQ's text, or OSError."""
        self._read_changed(self._fingerprints())
        access_key = str(change["accessKey"])
        path = self._path_of(access_key) or self._default
        values = self._values(path)
        accounts = _accounts(values)
        member = _member(accounts, access_key)
        account = {} if member is None else accounts.pop(member)
        account.update(change)
        accounts.append(account)
        values[ACCOUNTS] = accounts
        self._replace(path, values)

    def delete_account(self, access_key: str) -> bool:
        """Delete an account; return whether there was one. Raises AclError or OSError."""
        self._read_changed(self._fingerprints())
        path = self._path_of(access_key)
        if path is None:
            return False
        values = self._values(path)
        accounts = _accounts(values)
        member = _member(accounts, access_key)
        if member is None:
            return False
        del accounts[member]
        values[ACCOUNTS] = accounts
        self._replace(path, values)
        return True

    def set_white(self, addresses: list[str], path_text: str) -> bool:
        """Set the global white addresses of a file, by default of `plain_acl.yml`; return whether there is such a file
        of accounts. Raises AclError with RocketMQ's text, or OSError."""
        self._read_changed(self._fingerprints())
        path = self._known_path(path_text) if path_text else self._default
        if path is None or path not in self._loaded:
            return False
        values = self._values(path)
        values[WHITE] = list(addresses)
        self._replace(path, values)
        return True

    def _path_of(self, access_key: str) -> Path | None:
        return next((path for path, loaded in self._ordered() if access_key in loaded.rules.accounts), None)

    def _known_path(self, text: str) -> Path | None:
        """Return the file that a request names; None if it is not one of the files of accounts."""
        return next((path for path in self._loaded if str(path) == text), None)

    def _values(self, path: Path) -> Values:
        """Return the values of a file. Raises AclError if it has an error."""
        loaded = self._loaded.get(path)
        if loaded is not None and loaded.problem is not None:
            raise AclError(f"{path}: {loaded.problem}")
        return yaml_file.read(path) if path.exists() else {}

    def _replace(self, path: Path, values: Values) -> None:
        rules = _rules_of(values, self._first_version)
        version = Version((rules.version or self._first_version).counter + 1, self._now_ms())
        values[VERSION] = [msgspec.structs.asdict(version)]
        yaml_file.replace(path, values)
        fingerprint = fingerprint_of(path)
        assert fingerprint is not None
        self._loaded[path] = _Loaded(fingerprint, msgspec.structs.replace(rules, version=version))
        self._combine()

    # ---------------------------------------------------------------------------------------------------------- reading

    def _fingerprints(self) -> dict[Path, Fingerprint]:
        found = ((path, fingerprint_of(path)) for path in paths_in(self._default.parent))
        return {path: fingerprint for path, fingerprint in found if fingerprint is not None}

    def _read_changed(self, seen: Mapping[Path, Fingerprint]) -> bool:
        """Read the files whose fingerprints differ from those that were read; return whether there are any."""
        self._seen = dict(seen)
        gone = self._loaded.keys() - seen.keys()
        changed = [
            path for path, now in seen.items() if path not in self._loaded or self._loaded[path].fingerprint != now
        ]
        for path in gone:
            del self._loaded[path]
            log.warning("file of accounts is gone path=%s", path)
        for path in changed:
            self._loaded[path] = self._read(path, seen[path])
        if gone or changed:
            self._combine()
        return bool(gone or changed)

    def _read(self, path: Path, fingerprint: Fingerprint) -> _Loaded:
        previous = self._loaded.get(path)
        before = FileRules() if previous is None else previous.rules
        try:
            if self._is_strict and is_exposed_now(path):
                raise AclError(f"{PROBLEM} (strictSecretFiles=true)")
            values = yaml_file.read(path)
            if not values and before != FileRules():
                raise AclError("the file is empty")  # perhaps an editor is writing it; `accounts: []` removes all
            rules = _rules_of(values, self._first_version)
        except Exception as error:  # noqa: BLE001 (no content of a file may end the polls, or change the rules)
            problem = _problem_of(error)
            log.error(
                "file of accounts has an error, its earlier rules stay in effect path=%s reason=%s", path, problem
            )
            return _Loaded(fingerprint, before, problem)
        log.info("file of accounts read path=%s accounts=%d white=%d", path, len(rules.accounts), len(rules.white))
        return _Loaded(fingerprint, rules)

    def _ordered(self) -> list[tuple[Path, _Loaded]]:
        return sorted(self._loaded.items(), key=lambda item: (item[0] == self._default, item[0]))

    def _combine(self) -> None:
        """Make the rules of all files."""
        self.paths = tuple(self._loaded)
        self.problems = {path: loaded.problem for path, loaded in self._ordered() if loaded.problem is not None}
        accounts: dict[str, Account] = {}
        for path, loaded in self._ordered():
            for access_key, account in loaded.rules.accounts.items():
                if accounts.setdefault(access_key, account) is not account:
                    log.warning(
                        "account is defined in another file, too, and ignored here account=%s path=%s", access_key, path
                    )
        versions = {str(path): version for path, loaded in self._ordered() if (version := loaded.rules.version)}
        self.rules = Rules(
            tuple(matches for _, loaded in self._ordered() for matches in loaded.rules.white),
            accounts,
            versions,
            versions.get(str(self._default), self._first_version),
        )


# --- files of a directory ---------------------------------------------------------------------------------------------


def paths_in(directory: Path) -> Iterator[Path]:
    """Yield the files of accounts in a directory, in their order. The last one, `plain_acl.yml`, may be missing."""
    folder = directory / FOLDER
    if folder.is_dir():
        found = (path for path in folder.rglob("*") if path.suffix in SUFFIXES)
        yield from sorted(path for path in found if not is_hidden(path.relative_to(folder)))
    yield directory / DEFAULT_FILE


def is_hidden(path: Path) -> bool:
    """Return whether a part of a relative path begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def account_values(directory: Path) -> Iterator[Mapping[Any, Any]]:
    """Yield the accounts in the files of a directory, in their order, as YAML values. Raises AclError or OSError, with
    the file."""
    for path in paths_in(directory):
        if not path.exists():
            continue
        try:
            values = _accounts(yaml_file.read(path))
        except AclError as error:
            raise AclError(f"{path}: {error}") from None
        for value in values:
            if not isinstance(value, Mapping):
                raise AclError(f"{path}: an account must be a mapping")
            yield value


def _problem_of(error: Exception) -> str:
    """Return the reason for the log, without the content of the file."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error) if isinstance(error, AclError) else f"a value cannot be used ({type(error).__name__})"


# --- values of a file -------------------------------------------------------------------------------------------------


def _rules_of(values: Values, first_version: Version) -> FileRules:
    """Return the rules in the values of a file. Raises AclError."""
    if not values:
        return FileRules()
    accounts: dict[str, Account] = {}
    for value in _accounts(values):
        account = account_of(value)
        accounts.setdefault(account.access_key, account)
    white = tuple(pattern_of(text) for text in texts_of(values, WHITE))
    return FileRules(white, accounts, _version_of(values) or first_version)


def _accounts(values: Values) -> list[Any]:
    accounts = values.get(ACCOUNTS)
    if accounts is None:
        return []
    if not isinstance(accounts, list):
        raise AclError(f"{ACCOUNTS} must be a list")
    return accounts


def _member(accounts: list[Any], access_key: str) -> int | None:
    """Return the index of an account."""
    return next((at for at, account in enumerate(accounts) if text_of(account, "accessKey") == access_key), None)


def _version_of(values: Values) -> Version | None:
    """Return the version of a file, the first member of a list; None without one."""
    versions = values.get(VERSION)
    if not versions:
        return None
    try:
        version = msgspec.convert(versions[0], Version, strict=False)
    except (msgspec.ValidationError, LookupError, TypeError, ValueError):
        raise AclError(f"{VERSION} must be a list of a counter and a timestamp") from None
    if not all(abs(number) <= INT64_MAX for number in msgspec.structs.astuple(version)):
        raise AclError(f"{VERSION} must have numbers of 64 bits")
    return version
