"""The attacker's callers under access control: the account that a request names, and what is wrong with its signature.

    caller = rng.choice(CALLERS)
    fields = with_credentials(rng, caller, fields, body)

Only WITHOUT_RIGHTS and OTHER_TOPIC are verified. Signatures are computed over the fields as the daemon receives them,
after all other mutations.
"""

import random
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from tests.attack import accounts
from tests.harness.raw import Credentials, texts

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
ODD_KEYS: Final[tuple[Any, ...]] = (
    "", " ", "administrator ", " administrator", "Administrator", "administrator\0", "administrator\n", "*", "%s",
    "a\x1b[2J", "\u202e", "\ud800", "ad\u200bministrator", "\U0001f600", "User:administrator", "{}", "../x", "null",
    None, True, 0, -1, 1e308, 2**64, [], ["administrator"], {"a": "administrator"}, "k" * 70_000,
)  # fmt: skip
ODD_SIGNATURES: Final[tuple[Any, ...]] = (
    "", " ", "=", "====", "AAAA", "A" * 28, "A" * 27 + "=", "not base64!", "\0", "\u00e9", "\ud800", "\n", "null",
    None, True, 0, 1e308, [], {}, "A" * 70_000,
)  # fmt: skip
DAMAGES: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: text[:-1],
    lambda text: text.swapcase(),
    lambda text: f"{text}=",
    lambda text: f"{text}\n",
    lambda text: f" {text}",
    lambda text: text[::-1],
)


class Caller(Enum):
    """Which account a request names, and whether its signature is valid."""

    ANONYMOUS = "anonymous"
    UNKNOWN_ACCOUNT = "unknown account"
    WRONG_SIGNATURE = "wrong signature"
    MALFORMED = "malformed credentials"
    WITHOUT_RIGHTS = "without rights"
    OTHER_TOPIC = "rights to another topic"

    @property
    def is_verified(self) -> bool:
        """Whether the account exists and its signature is valid."""
        return self in (Caller.WITHOUT_RIGHTS, Caller.OTHER_TOPIC)


CALLERS: Final = (*Caller, Caller.WITHOUT_RIGHTS, Caller.OTHER_TOPIC, Caller.OTHER_TOPIC)


def with_credentials(rng: random.Random, caller: Caller, fields: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return the ext fields with the credentials of `caller`."""
    bare = {name: value for name, value in fields.items() if name not in (ACCESS_KEY, SIGNATURE)}
    return _CREDENTIALS[caller](rng, bare, body)


def _anonymous(_rng: random.Random, fields: dict[str, Any], _body: bytes) -> dict[str, Any]:
    return fields


def _signed(account: Credentials) -> Callable[[random.Random, dict[str, Any], bytes], dict[str, Any]]:
    def sign(_rng: random.Random, fields: dict[str, Any], body: bytes) -> dict[str, Any]:
        return _with_signature(account, account.secret_key, fields, body)

    return sign


def _wrong_signature(rng: random.Random, fields: dict[str, Any], body: bytes) -> dict[str, Any]:
    account = rng.choice((accounts.ADMINISTRATOR, accounts.NORMAL, accounts.OTHER_TOPIC))
    kind = rng.randrange(4)
    if kind == 0:
        return {**fields, ACCESS_KEY: account.access_key}
    if kind == 1:
        return _with_signature(account, rng.choice(("", account.access_key, "wrong")), fields, body)
    if kind == 2:
        return _with_signature(account, account.secret_key, fields, body + b"x")
    right = _with_signature(account, account.secret_key, fields, body)
    return right | {SIGNATURE: rng.choice(DAMAGES)(right[SIGNATURE])}


def _malformed(rng: random.Random, fields: dict[str, Any], body: bytes) -> dict[str, Any]:
    account = rng.choice((accounts.ADMINISTRATOR, accounts.OTHER_TOPIC))
    kind = rng.randrange(3)
    if kind == 0:
        return {**fields, ACCESS_KEY: rng.choice(ODD_KEYS), SIGNATURE: rng.choice(ODD_SIGNATURES)}
    if kind == 1:
        return {**fields, ACCESS_KEY: account.access_key, SIGNATURE: rng.choice(ODD_SIGNATURES)}
    token = {SECURITY_TOKEN: rng.choice(("token", " ", account.secret_key))}
    return _with_signature(account, account.secret_key, fields, body) | token


def _with_signature(account: Credentials, secret_key: str, fields: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return the fields with an access key, and a signature of their texts; their types remain."""
    credentials = Credentials(account.access_key, secret_key).signed(texts(fields), body)
    return {**fields, ACCESS_KEY: credentials[ACCESS_KEY], SIGNATURE: credentials[SIGNATURE]}


_CREDENTIALS: Final[Mapping[Caller, Callable[[random.Random, dict[str, Any], bytes], dict[str, Any]]]] = {
    Caller.ANONYMOUS: _anonymous,
    Caller.UNKNOWN_ACCOUNT: _signed(accounts.UNKNOWN),
    Caller.WRONG_SIGNATURE: _wrong_signature,
    Caller.MALFORMED: _malformed,
    Caller.WITHOUT_RIGHTS: _signed(accounts.WITHOUT_RIGHTS),
    Caller.OTHER_TOPIC: _signed(accounts.OTHER_TOPIC),
}
