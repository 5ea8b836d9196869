"""Requests signed for brokers that check who asks (plain ACL of RocketMQ 4, authentication of 5).

Three ext fields are added: AccessKey, SecurityToken if there is one, and Signature, which is the HMAC-SHA1 of all other
ext fields' values in the order of their names, and of the body, in base64. A broker that checks nothing ignores them.

A whole frame is signed, whoever made it: it is taken apart and put together again, which costs some 20 µs and is paid
only by those who have keys. Name servers get signed requests too, as RocketMQ's clients send them.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping

import msgspec

from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command

_OURS = ("AccessKey", "SecurityToken", "Signature")


class Credentials(msgspec.Struct, frozen=True):
    """Who asks."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return "<Credentials>"

    def signed(self, ext: Mapping[str, str], body: bytes | memoryview = b"") -> dict[str, str]:
        """The ext fields of a request with those that sign it."""
        fields = {name: value for name, value in ext.items() if name not in _OURS}
        fields["AccessKey"] = self.access_key
        if self.security_token is not None:
            fields["SecurityToken"] = self.security_token
        content = "".join(fields[name] for name in sorted(fields)).encode()
        digest = hmac.digest(self.secret_key.encode(), content + body, "sha1")
        return {**fields, "Signature": b64encode(digest).decode()}

    def signed_frame(self, frame: bytes) -> bytes:
        """The frame of a request, signed; any other as it is."""
        for decoded in FrameDecoder(len(frame) + 1).feed(memoryview(frame)):
            command = decode_command(decoded)
            if command is not None and not command.is_response:
                command.ext = self.signed(command.ext_fields(), command.body)
                return encode_command(command)
        return frame
