"""Signatures of requests: RocketMQ's HMAC-SHA1 over the values of the ext fields, as received, and the body.

The content is the values of all ext fields in the order of their names, without the field Signature (and without
`_UNIQUE_KEY_QUERY` if the requester is older than 5.0), in UTF-8, followed by the body. Values count as received: a
number signs as the text of its literal.

Source: docs/formats.md, "Signatures".
"""

import hmac
from base64 import b64encode
from typing import Final

import msgspec

from skylarkmq.protocol.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
LAST_4X_VERSION: Final = 399


class Signed(msgspec.Struct, frozen=True):
    """The signed parts of a request: `content` without the body."""

    access_key: str
    signature: str
    content: bytes

    def __repr__(self) -> str:
        return f"<Signed {self.access_key}>"


class SigningKey:
    """The secret of an account, as a keyed state that is computed once."""

    __slots__ = ("_keyed",)

    def __init__(self, secret: str) -> None:
        self._keyed = hmac.new(secret.encode(), digestmod="sha1")

    def __repr__(self) -> str:
        return "<SigningKey>"

    def sign(self, content: bytes, body: bytes | memoryview) -> str:
        """Return the signature, in base64."""
        keyed = self._keyed.copy()
        keyed.update(content)
        keyed.update(body)
        return b64encode(keyed.digest()).decode()

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether the signature is this key's. The time does not depend on the position of a difference."""
        return hmac.compare_digest(self.sign(signed.content, body).encode(), signed.signature.encode())


def signed_parts(command: RemotingCommand, *, is_unique_key_query_signed: bool = False) -> Signed | None:
    """Return the signed parts of a request; None without an AccessKey."""
    fields = command.ext_fields()
    access_key = fields.get(ACCESS_KEY)
    if access_key is None:
        return None
    unsigned = {SIGNATURE} if is_unique_key_query_signed else {SIGNATURE, UNIQUE_KEY_QUERY}
    content = "".join(fields[name] for name in sorted(fields) if name not in unsigned).encode()
    return Signed(access_key, fields.get(SIGNATURE, ""), content)


class Signer:
    """Signs the requests of one account."""

    def __init__(self, access_key: str, secret: str) -> None:
        self._access_key = access_key
        self._key = SigningKey(secret)

    def __repr__(self) -> str:
        return f"<Signer {self._access_key}>"

    def sign(self, command: RemotingCommand) -> None:
        """Add the account and the signature to a request that is not encoded yet."""
        fields = dict(command.ext_fields()) | {ACCESS_KEY: self._access_key}
        fields.pop(SIGNATURE, None)
        command.ext = fields
        signed = signed_parts(command, is_unique_key_query_signed=command.version > LAST_4X_VERSION)
        assert signed is not None  # the access key is among the fields
        fields[SIGNATURE] = self._key.sign(signed.content, command.body)
