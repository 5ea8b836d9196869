"""Signatures of requests: RocketMQ's HMAC-SHA1 over the values of the ext fields, as received, and the body.

The content is the values of all ext fields in the order of their names, without the field Signature (and without
`_UNIQUE_KEY_QUERY`, depending on the requester's version), in UTF-8, followed by the body. Names are ordered as Java
orders them, by UTF-16 units. Values count as received: escapes are decoded, a number or boolean signs as its literal,
and null and an empty text sign as nothing.

The compiled module `signed` reads the parts of fast-path sends and pulls; all other requests are read here.

Source: docs/reference/wire.md, "Signatures".
"""

from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Final, Protocol

import msgspec

from skylarkmq.protocol import compiled
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.hmac_sha1 import keyed

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
V4_9_3: Final = 399
"""The number of the last version whose clients do not sign the field `_UNIQUE_KEY_QUERY`."""

SIGNATURE_FIELDS: Final = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})

_UNSIGNED: Final = frozenset({SIGNATURE})
_UNSIGNED_OR_QUERY: Final = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})


class Signed(msgspec.Struct, frozen=True, gc=False):
    """The signed parts of a request: `content` without the body."""

    access_key: str
    signature: str
    content: bytes

    def __repr__(self) -> str:
        return f"<Signed {self.access_key!r}>"


class SigningKey:
    """The secret of an account, as a keyed state that is computed once."""

    __slots__ = ("_hmac",)

    def __init__(self, secret: str) -> None:
        self._hmac = keyed(secret.encode())

    def __repr__(self) -> str:
        return "<SigningKey>"

    def sign(self, content: bytes | memoryview, body: bytes | memoryview) -> str:
        """Return the signature, in base64."""
        return self._hmac.signature(content, body).decode()

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether the signature is this key's. The time does not depend on the position of a difference."""
        own = self._hmac.signature(signed.content, body)
        return compare_digest(own, signed.signature.encode("utf-8", "replace"))

    def has_signed_send(self, command: RemotingCommand, code: int, topic: str, access_key: str) -> bool | None:
        """Return whether a fast-path send with this code, topic and access key has this key's signature; None for any
        other request, and without the compiled modules.

        The result is the same as from `signed_parts` and `has_signed`, in one step; None for a send with
        `_UNIQUE_KEY_QUERY`.
        """
        if _reader is None:
            return None
        found: bool | None = _reader.has_signed_send(command, code, topic, access_key, self._hmac)
        return found

    def count_signed_sends(
        self, commands: Sequence[RemotingCommand], at: int, end: int, code: int, topic: str, access_key: str
    ) -> int:
        """Return how many commands from `at` on, before `end`, are such sends with this key's signature. 0 without the
        compiled modules."""
        if _reader is None:
            return 0
        count: int = _reader.count_signed_sends(commands, at, end, code, topic, access_key, self._hmac)
        return count


def content_of(fields: Mapping[str, str], unsigned: frozenset[str] = _UNSIGNED) -> bytes:
    """Return the content without the body: the values of all fields but `unsigned`, ordered by name."""
    names = sorted(fields) if "".join(fields).isascii() else sorted(fields, key=_in_java)
    return "".join([fields[name] for name in names if name not in unsigned]).encode("utf-8", "replace")


def _in_java(name: str) -> bytes:
    """Return a key that orders texts like Java: by UTF-16 units, so surrogates come before U+E000."""
    return name.encode("utf-16-be", "surrogatepass")


class Signer:
    """Signs the requests of one account. `token`: its security token, if it has one."""

    __slots__ = ("_fields", "_key")

    def __init__(self, access_key: str, secret: str, token: str | None = None) -> None:
        self._fields = {ACCESS_KEY: access_key} if token is None else {ACCESS_KEY: access_key, SECURITY_TOKEN: token}
        self._key = SigningKey(secret)

    def __repr__(self) -> str:
        return f"<Signer {self._fields[ACCESS_KEY]}>"

    def sign(self, command: RemotingCommand) -> None:
        """Add the account and the signature to a request that is not encoded yet."""
        command.ext = self.signed(command.ext_fields(), command.body)

    def signed(self, fields: Mapping[str, str], body: bytes | memoryview) -> dict[str, str]:
        """Return the ext fields of a request with the account and the signature."""
        unsigned = {name: value for name, value in fields.items() if name not in SIGNATURE_FIELDS}
        return unsigned | self.added(unsigned, body)

    def added(self, fields: Mapping[str, str], body: bytes | memoryview) -> dict[str, str]:
        """Return the fields to add to a request with these ext fields."""
        return {**self._fields, SIGNATURE: self._key.sign(content_of({**fields, **self._fields}), body)}


class ReadSigned(Protocol):
    """The type of `signed_parts`."""

    def __call__(self, command: RemotingCommand, *, is_unique_key_query_signed: bool = False) -> Signed | None:
        """Return the signed parts of a request; None without an AccessKey. Raises ProtocolError if the ext fields are
        invalid."""


def python_signed_parts(command: RemotingCommand, *, is_unique_key_query_signed: bool = False) -> Signed | None:
    """Return the signed parts of any request; see ReadSigned."""
    fields = command.ext_fields()
    access_key = fields.get(ACCESS_KEY)
    if access_key is None:
        return None
    content = content_of(fields, _UNSIGNED if is_unique_key_query_signed else _UNSIGNED_OR_QUERY)
    return Signed(access_key, fields.get(SIGNATURE, ""), content)


_compiled: Final = compiled.load("signed")
_reader: Final = None if _compiled is None else _compiled.Reader(python_signed_parts)
signed_parts: Final[ReadSigned] = python_signed_parts if _reader is None else _reader.signed_parts
