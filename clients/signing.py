"""Requests signed for brokers that check who asks (plain ACL of RocketMQ 4, authentication of 5).

Three ext fields are added: AccessKey, SecurityToken if there is one, and Signature, which is the HMAC-SHA1 of all other
ext fields' values in the order of their names, and of the body, in base64. A broker that checks nothing ignores them.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping

import msgspec


class Credentials(msgspec.Struct, frozen=True):
    """Who asks."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"<Credentials {self.access_key[:4]}...>"

    def signed(self, ext: Mapping[str, str] | None, body: bytes = b"") -> dict[str, str]:
        """The ext fields of a request with those that sign it."""
        fields = {**(ext or {}), "AccessKey": self.access_key}
        fields.pop("Signature", None)
        if self.security_token is not None:
            fields["SecurityToken"] = self.security_token
        content = "".join(fields[name] for name in sorted(fields)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, "sha1")
        return {**fields, "Signature": b64encode(digest).decode()}
