"""Signed requests, for brokers that authenticate clients (plain ACL of RocketMQ 4, authentication of RocketMQ 5).

Three ext fields are added: AccessKey, SecurityToken if there is one, and Signature (protocol/signature.py). A broker
without authentication ignores them. Requests to name servers are signed too, as by RocketMQ's clients.

A request is signed as an encoded frame, when it is written. In a JSON header the three fields are inserted at the end
of the ext fields, so the header is not encoded again; in the other dialects it is. The positional fields of MSGPACK
have no place for a signature, so clients with credentials use JSON.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from skylarkmq.protocol.codes import Flag
from skylarkmq.protocol.command import JSON
from skylarkmq.protocol.frame import FrameDecoder, encode_frame
from skylarkmq.protocol.serialize import decode_command, encode_command
from skylarkmq.protocol.signature import SIGNATURE_FIELDS, Signer

_PREFIX_BYTES: Final = 8
_encode: Final = msgspec.json.Encoder().encode


class _Header(msgspec.Struct, gc=False):
    """The members of a JSON header that matter here."""

    ext: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw())
    flag: int = 0


_decode_header: Final = msgspec.json.Decoder(_Header).decode
_decode_fields: Final = msgspec.json.Decoder(dict[str, str]).decode
_signer_of: Final = lru_cache(maxsize=8)(Signer)


class Credentials(msgspec.Struct, frozen=True):
    """The keys that identify a client to brokers."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return "<Credentials>"

    def signed(self, ext: Mapping[str, str], body: bytes | memoryview = b"") -> dict[str, str]:
        """Return the ext fields of a request with its signature."""
        return self._signer.signed(ext, body)

    def signed_frame(self, frame: bytes) -> bytes:
        """Return the signed frame of a request; the frame of a response unchanged."""
        if frame[4] == JSON:
            header_end = _PREFIX_BYTES + int.from_bytes(frame[5:_PREFIX_BYTES], "big")
            header, body = frame[_PREFIX_BYTES:header_end], frame[header_end:]
            found = _decode_header(header)
            if found.flag & Flag.RESPONSE:
                return frame
            ext = bytes(found.ext)
            fields = _decode_fields(ext or b"{}")
            if fields and SIGNATURE_FIELDS.isdisjoint(fields):
                ext_end = header.index(ext) + len(ext) - 1
                added = _encode(self._signer.added(fields, body))
                return encode_frame(JSON, b"".join((header[:ext_end], b",", added[1:-1], header[ext_end:])), body)
        return self._encoded_again(frame)

    @property
    def _signer(self) -> Signer:
        return _signer_of(self.access_key, self.secret_key, self.security_token)

    def _encoded_again(self, frame: bytes) -> bytes:
        for decoded in FrameDecoder(len(frame) + 1).feed(memoryview(frame)):
            command = decode_command(decoded)
            if command is not None and not command.is_response:
                self._signer.sign(command)
                return encode_command(command)
        return frame
