"""Errors by whose fault they are and what follows.

`ProtocolError`  the peer's bytes cannot be understood: its connection is closed, nothing is answered.
`RequestError`   the request is understood and refused: it becomes a response with this code and remark, at one place
                 (`broker.remoting.dispatch`), wherever it was raised.

Everything else that escapes a processor is our own fault: SYSTEM_ERROR to the peer, a traceback in the log.
"""

from skylarkmq.protocol.codes import ResponseCode


class ProtocolError(Exception):
    """Bytes that are no frame, no header or no body of this protocol."""


class RequestError(Exception):
    """A refusal: the response code and the remark that the client will read."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark

    def __str__(self) -> str:
        return f"{self.code.name} ({self.code.value}): {self.remark}"
