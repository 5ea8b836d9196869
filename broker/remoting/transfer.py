"""Transfer: what leaves our connections, in order, and what their peers have not taken yet.

Everything that is written to a connection during a turn is gathered in its `Output` and leaves at the end of the turn
in one write. What the peer does not take stays in the transport and counts as its backlog, one by one and all together;
the reading half of the connection is told when that is too much, and when all is gone.

        write ... write -> Transfer.flush -> Output.flush -> transport
"""

import asyncio
from typing import Protocol

from broker.remoting.config import RemotingConfig


class Reader(Protocol):
    """What an output tells the reading half of its connection."""

    def behind(self) -> None:
        """More waits for the peer than it may."""

    def progressed(self) -> None:
        """The peer took something."""

    def drained(self) -> None:
        """The peer took all there was."""


class _Nobody:
    """The reader of an output whose connection is gone (so that neither keeps the other alive)."""

    def behind(self) -> None:
        pass

    progressed = drained = behind


class Transfer:
    """What the outputs of all connections of one event loop share."""

    def __init__(self, config: RemotingConfig) -> None:
        self.config = config
        self.backlog_bytes = 0
        self.sent_bytes = 0
        self._dirty: list[Output] = []
        self._flush_due = False

    def __repr__(self) -> str:
        return f"<Transfer {self.backlog_bytes} bytes wait>"

    def begin_turn(self) -> bool:
        """From now on nothing is written before the end of this turn; returns whether a flush was due already."""
        was_due, self._flush_due = self._flush_due, True
        return was_due

    def end_turn(self, was_due: bool) -> None:
        """Undo `begin_turn`; the caller flushes."""
        self._flush_due = was_due

    def to_flush(self, output: "Output") -> None:
        """Remember an output; it is written at the end of this read, or of this loop turn."""
        self._dirty.append(output)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what the outputs gathered."""
        self._flush_due = False
        dirty, self._dirty = self._dirty, []
        for output in dirty:
            output.flush()


class Output:
    """The writing half of one connection."""

    __slots__ = ("_out", "_reader", "_transfer", "_transport", "backlog_bytes", "gathered_bytes")

    def __init__(self, transfer: Transfer, reader: Reader) -> None:
        self._transfer = transfer
        self._reader: Reader = reader
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes | memoryview] = []
        self.gathered_bytes = 0  # written in this turn, and still here
        self.backlog_bytes = 0  # what the peer has not taken yet

    def __repr__(self) -> str:
        return f"<Output gathered={self.gathered_bytes} backlog={self.backlog_bytes}>"

    @property
    def waiting_bytes(self) -> int:
        """Everything the peer has not got."""
        return self.gathered_bytes + self.backlog_bytes

    def opened(self, transport: asyncio.Transport) -> None:
        """Write to this transport."""
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # it shall tell when all is gone

    def lost(self) -> None:
        """Nothing leaves any more."""
        self._transport = None
        self._reader = _Nobody()
        self._account(0)
        self._out.clear()

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes to what leaves at the end of this turn; dropped when the peer is gone."""
        if self._transport is None:
            return
        if not self._out:
            self._transfer.to_flush(self)
        self._out.append(data)
        self.gathered_bytes += len(data)

    def flush(self) -> None:
        """Write what this turn gathered."""
        out = self._out
        if not out:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            out.clear()
            self.gathered_bytes = 0
            return
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._transfer.sent_bytes += self.gathered_bytes
        self._out = []
        self.gathered_bytes = 0
        self._account(transport.get_write_buffer_size())
        if not self.backlog_bytes:
            self._reader.drained()

    def taken(self) -> None:
        """The transport has written all it had."""
        self._account(0)

    def note_progress(self) -> None:
        """Look how much a slow peer has taken meanwhile."""
        if self.backlog_bytes and self._transport is not None:
            backlog = self._transport.get_write_buffer_size()
            if backlog < self.backlog_bytes:
                self._reader.progressed()
                self._account(backlog)

    def _account(self, backlog: int) -> None:
        """Note how many bytes wait for this peer now."""
        transfer, config = self._transfer, self._transfer.config
        transfer.backlog_bytes += backlog - self.backlog_bytes
        self.backlog_bytes = backlog
        if backlog > config.peer_backlog_bytes or (backlog and transfer.backlog_bytes > config.total_backlog_bytes):
            self._reader.behind()
