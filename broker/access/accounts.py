"""Accounts of a daemon itself: of a name server, of the metrics page, and the broker's own.

`accountsFile` is a JSON list of accounts, in the form of RocketMQ's `innerClientAuthenticationCredentials`. An account
without a secret is proven by its client certificate only:

    [{"accessKey": "broker-a", "secretKey": "…"}, {"accessKey": "broker-b"}]

The file may change while the daemon runs. An invalid file leaves the accounts as they were, and is logged once.
Source: docs/reference/behaviour.md, "Accounts".
"""

import hmac
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.access.config import Credentials
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.remoting.tls import file_fingerprint
from skylarkmq.protocol.signature import Signed, SigningKey

OWN_ACCOUNT: Final = "skylark-broker"
MAX_FILE_BYTES: Final = 16 << 20

log = logging.getLogger(__name__)


class Passwords(Protocol):
    """Accounts with passwords, which are their secrets."""

    def is_known(self, account: str) -> bool:
        """Return whether the account exists."""

    def password_matches(self, account: str, password: str) -> bool:
        """Return whether this is the account's secret. Takes the same steps for an unknown account."""

    def may_administer(self, account: str) -> bool:
        """Return whether the account exists, and may do everything in the console."""


class Accounts(Passwords, Protocol):
    """Accounts that sign requests."""

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether a request has the signature of its account. Takes the same steps for an unknown account."""


class Account(msgspec.Struct, frozen=True, rename="camel"):
    """One account of the file; without a secret it has neither signature nor password."""

    access_key: str
    secret_key: str | None = None

    def __repr__(self) -> str:
        return f"<Account {self.access_key}>"


class AccountTable:
    """Accounts in memory."""

    def __init__(self, accounts: Sequence[Account] = ()) -> None:
        self._secrets = {account.access_key: account.secret_key for account in accounts}
        self._keys = {
            account.access_key: SigningKey(account.secret_key) for account in accounts if account.secret_key is not None
        }
        self._decoy_secret = secrets.token_urlsafe()
        self._decoy_key = SigningKey(self._decoy_secret)

    def __repr__(self) -> str:
        return f"<AccountTable {len(self._secrets)}>"

    def is_known(self, account: str) -> bool:
        """Return whether the account exists."""
        return account in self._secrets

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether a request has the signature of its account; the decoy's key checks unknown accounts."""
        return self._keys.get(signed.access_key, self._decoy_key).has_signed(signed, body)

    def password_matches(self, account: str, password: str) -> bool:
        """Return whether this is the account's secret. The time does not depend on the position of a difference."""
        secret = self._secrets.get(account) or self._decoy_secret
        return hmac.compare_digest(secret.encode(), password.encode())

    def may_administer(self, account: str) -> bool:
        """Return whether the account exists: accounts of name servers have no roles."""
        return self.is_known(account)


class AccountsFile:
    """The accounts of a file, which is read again when it has changed. Raises StartError if it is invalid now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = file_fingerprint(path)
        try:
            self._table = _read(path)
        except (OSError, ValueError) as error:
            raise StartError(f"accountsFile={path}: {_reason(error)}") from None

    def __repr__(self) -> str:
        return f"<AccountsFile {self._path} {self._table!r}>"

    def is_known(self, account: str) -> bool:
        """Return whether the account exists."""
        return self._latest().is_known(account)

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether a request has the signature of its account."""
        return self._latest().has_signed(signed, body)

    def password_matches(self, account: str, password: str) -> bool:
        """Return whether this is the account's secret."""
        return self._latest().password_matches(account, password)

    def may_administer(self, account: str) -> bool:
        """Return whether the account exists."""
        return self._latest().may_administer(account)

    def _latest(self) -> AccountTable:
        fingerprint = file_fingerprint(self._path)
        if fingerprint != self._seen:
            self._seen = fingerprint
            try:
                self._table = _read(self._path)
            except Exception as error:  # noqa: BLE001 (no content of the file may change the accounts)
                log.warning(
                    "accounts not reloaded, the old ones are kept file=%s reason=%s", self._path, _reason(error)
                )
            else:
                log.info("accounts reloaded file=%s", self._path)
        return self._table


class AnyOf:
    """The accounts of several sources."""

    def __init__(self, sources: Sequence[Accounts]) -> None:
        self._sources = tuple(sources)

    def __repr__(self) -> str:
        return f"<AnyOf {self._sources!r}>"

    def is_known(self, account: str) -> bool:
        """Return whether the account exists in one of the sources."""
        return any(source.is_known(account) for source in self._sources)

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether a request has the signature of its account."""
        return any(source.has_signed(signed, body) for source in self._sources)

    def password_matches(self, account: str, password: str) -> bool:
        """Return whether this is the account's secret."""
        return any(source.password_matches(account, password) for source in self._sources)

    def may_administer(self, account: str) -> bool:
        """Return whether the account may do everything, by one of the sources."""
        return any(source.may_administer(account) for source in self._sources)


def own_credentials() -> Credentials:
    """Return new credentials, with which a broker registers with the name server in its process."""
    return Credentials(OWN_ACCOUNT, secrets.token_urlsafe(32))


def table_of(credentials: Credentials) -> AccountTable:
    """Return a table with one account."""
    return AccountTable((Account(credentials.access_key, credentials.secret_key),))


def _read(path: Path) -> AccountTable:
    """Return the accounts of a file. Raises OSError or ValueError; the error does not contain the file's content."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
    accounts = msgspec.json.decode(data, type=list[Account])
    names = [account.access_key for account in accounts]
    if not all(names) or "" in (account.secret_key for account in accounts):
        raise ValueError("an empty accessKey or secretKey")
    if len(set(names)) != len(names):
        raise ValueError("an accessKey occurs more than once")
    return AccountTable(accounts)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "cannot be read"
    return str(error) if isinstance(error, ValueError) else f"it cannot be used ({type(error).__name__})"
