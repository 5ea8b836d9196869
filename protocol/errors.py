"""Errors, by which side causes them and what follows.

`ProtocolError`  the peer's bytes cannot be decoded: the broker closes the connection without a response.
`RequestError`   the request is valid but refused: one place (`broker.remoting.dispatch`) turns the error into a
response
                 with this code and remark, wherever it was raised.

Any other exception that leaves a processor is a bug: the peer gets SYSTEM_ERROR, the log gets a traceback.
"""

from skylarkmq.protocol.codes import ResponseCode


class ProtocolError(Exception):
    """The bytes are not a valid frame, header or body of this protocol."""


class RequestError(Exception):
    """A refused request: the response code and the remark for the client."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark

    def __str__(self) -> str:
        return f"{self.code.name} ({self.code.value}): {self.remark}"
