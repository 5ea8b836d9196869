"""The requests of a classic slave to its master: ordinary remoting, to the address that name servers return.

A failed request raises OSError (no connection, no response in time) or MasterError (a refusal, or a body that cannot be
decoded). A master of RocketMQ 4.9 does not have the requests of 5.x; these return None then.

Source: docs/reference/wire.md, "Slaves".
"""

import re
from typing import Final, TypeVar

import msgspec

from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.protocol.bodies.body import Body, BodyError
from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.queue import ViewMessageHeader
from skylarkmq.protocol.record import SMALLEST_RECORD

TIMEOUT_S: Final = 5.0
UNKNOWN_MASTER: Final = (
    "no live master of this brokerName is registered at namesrvAddr: check both settings, and that the master runs"
)
_ABSENT: Final = frozenset((ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR))
_SEGMENT_BYTES: Final = re.compile(r"^mappedFileSizeCommitLog=([0-9]{1,18})\s*$", re.MULTILINE)
_EMPTY: Final = re.compile(r"No (consumer|delay) offset in this broker")
_MIN_OFFSET, _MAX_OFFSET = "commitLogMinOffset", "commitLogMaxOffset"

B = TypeVar("B", bound=Body)


class MasterError(Exception):
    """The master refused a request, or its response is of no use."""


class LogBounds(msgspec.Struct, frozen=True):
    """The first byte of the master's log, and the byte after its last one."""

    begin: int
    end: int


class MasterCalls:
    """Sends requests to the master. `address` (host:port) is None while no master is registered."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self.address: str | None = None

    def __repr__(self) -> str:
        return f"<MasterCalls {self.address}>"

    async def log_bounds(self) -> LogBounds:
        """Ask GET_BROKER_RUNTIME_INFO (28) for the bounds of the log. Raises OSError, MasterError.

        RocketMQ's log begins at -1 until it has a file."""
        table = (await self.body(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
        try:
            bounds = LogBounds(max(int(table[_MIN_OFFSET]), 0), int(table[_MAX_OFFSET]))
        except (KeyError, ValueError):
            raise MasterError(
                f"master {self.address}: no {_MIN_OFFSET} and {_MAX_OFFSET} in its runtime info"
            ) from None
        if not 0 <= bounds.begin <= bounds.end:
            raise MasterError(f"master {self.address}: a log from {bounds.begin} to {bounds.end}")
        return bounds

    async def segment_bytes(self) -> int | None:
        """Ask GET_BROKER_CONFIG (26) for mappedFileSizeCommitLog. None: the master does not say. Raises OSError."""
        response = await self._call(RequestCode.GET_BROKER_CONFIG)
        text = bytes(response.body).decode(errors="replace") if response.code == ResponseCode.SUCCESS else ""
        found = _SEGMENT_BYTES.search(text)
        return None if found is None else int(found[1])

    async def record_at(self, offset: int) -> bytes:
        """Ask VIEW_MESSAGE_BY_ID (33) for the record at a byte of the log, as it is stored. Raises OSError,
        MasterError."""
        response = await self._call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=offset))
        self._check(RequestCode.VIEW_MESSAGE_BY_ID, response)
        record = bytes(response.body)
        if len(record) < SMALLEST_RECORD or int.from_bytes(record[:4], "big") != len(record):
            raise MasterError(f"master {self.address}: the message at byte {offset} is not a whole record")
        return record

    async def body(self, code: RequestCode, kind: type[B]) -> B:
        """Send a request without a header; return the body of its response. Raises OSError, MasterError."""
        return self._decoded(code, kind, await self._call(code))

    async def offsets(self, code: RequestCode, kind: type[B]) -> B:
        """Like `body`, for a table of offsets; RocketMQ responds SYSTEM_ERROR if the table has no row."""
        response = await self._call(code)
        if response.code == ResponseCode.SYSTEM_ERROR and _EMPTY.fullmatch(response.remark or ""):
            return kind()
        return self._decoded(code, kind, response)

    async def optional(self, code: RequestCode) -> bytes | None:
        """Send a request that only RocketMQ 5 has; return the body of its response. None: the master does not have it,
        or has turned this feature off, to which RocketMQ responds SYSTEM_ERROR. Raises OSError, MasterError."""
        response = await self._call(code)
        if response.code in _ABSENT:
            return None
        self._check(code, response)
        return bytes(response.body)

    def _decoded(self, code: RequestCode, kind: type[B], response: RemotingCommand) -> B:
        self._check(code, response)
        try:
            return kind.decode(response.body)
        except BodyError as error:
            raise MasterError(f"master {self.address}: the response to {code.name} ({code}): {error}") from None

    async def _call(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        if self.address is None:
            raise MasterError(UNKNOWN_MASTER)
        return await self._outbound.invoke(self.address, RemotingCommand.request(code, header), TIMEOUT_S)

    def _check(self, code: RequestCode, response: RemotingCommand) -> None:
        if response.code != ResponseCode.SUCCESS:
            raise MasterError(f"master {self.address}: {code.name} ({code}) got {response.code}, {response.remark}")
