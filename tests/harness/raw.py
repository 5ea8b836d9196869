"""A minimal client that sends and receives frames byte for byte.

The standard library encodes its JSON headers, not `protocol`, so that mistakes in our codec are found. It uses one
socket and one request at a time; other frames (requests of the broker) are skipped. With credentials it signs its
requests as RocketMQ's clients do. Source: docs/reference/wire.md, "Frame", "Signatures".
"""

import hmac
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.harness.limits import WAIT_LIMIT_S

RESPONSE_BIT = 1
VERSION = 479


class RawResponse(NamedTuple):
    """A decoded response frame."""

    code: int
    remark: str | None
    ext: dict[str, str]
    body: bytes


class Credentials(NamedTuple):
    """The keys of an account, with which a client signs its requests."""

    access_key: str
    secret_key: str

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields of a request with the access key and the signature."""
        fields = {**ext, "AccessKey": self.access_key}
        content = "".join(fields[name] for name in sorted(fields)).encode(errors="surrogatepass") + body
        signature = b64encode(hmac.digest(self.secret_key.encode(), content, "sha1")).decode()
        return {**fields, "Signature": signature}


class RawClient:
    """Connects at once. `timeout`, in seconds, limits the connect and every read (TimeoutError).

    `source` is the local address to connect from, if it matters.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout: float = WAIT_LIMIT_S,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout, None if source is None else (source, 0))
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._stream = self._socket.makefile("rb")
        self._opaque = 0
        self._credentials = credentials

    def call(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> RawResponse:
        """Send one request and return its response. Raises ConnectionError if the server disconnects instead."""
        self._opaque += 1
        self._socket.sendall(self._frame(code, ext or {}, body))
        while True:
            header, response_body = self._read_frame()
            if header["flag"] & RESPONSE_BIT and header["opaque"] == self._opaque:
                return RawResponse(header["code"], header.get("remark"), header.get("extFields") or {}, response_body)

    def pipeline(
        self, code: int, requests: Iterable[tuple[Mapping[str, object], bytes]]
    ) -> Iterator[tuple[int, RawResponse]]:
        """Send the requests in one write; yield (request number, response) pairs until the server disconnects."""
        first = self._opaque + 1
        frames = []
        for ext, body in requests:
            self._opaque += 1
            frames.append(self._frame(code, ext, body))
        self._socket.sendall(b"".join(frames))
        for _ in frames:
            try:
                header, response_body = self._read_frame()
            except ConnectionError:
                return
            response = RawResponse(header["code"], header.get("remark"), header.get("extFields") or {}, response_body)
            yield header["opaque"] - first, response

    def _frame(self, code: int, ext: Mapping[str, object], body: bytes) -> bytes:
        fields = texts(ext)
        if self._credentials is not None:
            fields = self._credentials.signed(fields, body)
        return frame({"code": code, "opaque": self._opaque, "extFields": fields}, body)

    def _read_frame(self) -> tuple[dict[str, Any], bytes]:
        length = int.from_bytes(self._read(4), "big")
        payload = self._read(length)
        header_end = 4 + int.from_bytes(payload[1:4], "big")
        return json.loads(payload[4:header_end]), payload[header_end:]

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise ConnectionError(f"the server closed the connection, {count - len(data)} bytes short of a frame")
        return data

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """Return a frame with a JSON header; `flag`, `language` and `version` have defaults."""
    text = json.dumps({"flag": 0, "language": "JAVA", "version": VERSION, **header}).encode()
    return (4 + len(text) + len(body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body


def texts(ext: Mapping[str, object]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in ext.items()}
