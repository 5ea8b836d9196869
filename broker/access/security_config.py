"""Settings of the accounts, networks and secrets of a daemon itself."""

import re
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.base.address_ranges import Network

_SEPARATOR: Final = re.compile(r"(?<!\\);")
_COMMA: Final = re.compile(r"(?<!\\),")


class MappedSubject(msgspec.Struct, frozen=True):
    """The subject of a client certificate in its canonical form (`canonical_subject`), and its account."""

    subject: str
    account: str

    def __str__(self) -> str:
        return f"{self.subject}={self.account}"


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that brokers and name servers share; all of them are ours."""

    namesrv_auth: bool = False  # name server: requests that register brokers or change anything need an account
    accounts_file: Path | None = None  # accounts of a name server and of the metrics page
    tls_auth_mapping: tuple[MappedSubject, ...] = ()  # accounts of client certificates
    admin_allowed_networks: tuple[Network, ...] = ()  # they may change the cluster without an account
    strict_secret_files: bool = False  # a file with secrets that other users can read stops the start
    secret_files: tuple[Path, ...] = ()  # the files that secret settings came from


def parse_mapping(text: str) -> tuple[MappedSubject, ...]:
    """Return the entries of `tlsAuthMapping`, `SUBJECT=ACCOUNT` each. Raises ValueError for another text.

    Source: docs/reference/behaviour.md, "Accounts of client certificates".
    """
    entries = []
    for part in filter(None, map(str.strip, _SEPARATOR.split(text))):
        subject, _, account = part.rpartition("=")
        if not account.strip():
            raise ValueError(part)
        entries.append(MappedSubject(canonical_subject(subject), account.strip()))
    if len({entry.subject for entry in entries}) != len(entries):
        raise ValueError(text)
    return tuple(entries)


def canonical_subject(text: str) -> str:
    """Return a subject such as `CN=orders,O=Example` with its attributes in alphabetical order, types in upper case.
    Raises ValueError for another text."""
    attributes = []
    for part in _COMMA.split(text):
        kind, equals, value = part.partition("=")
        if not equals or not kind.strip() or not value.strip():
            raise ValueError(f"not TYPE=VALUE: {part!r}")
        attributes.append(f"{kind.strip().upper()}={value.strip()}")
    return ",".join(sorted(attributes))
