"""The read batch: the reads that are served together, and the work at their end.

A read is handled completely before anything else happens: every complete frame in it is decoded and dispatched. A read
batch consists of the reads of one poll until they reach BATCH_BYTES; a read of that size is a batch of its own. At its
end processors finish the work that they collected (`Dispatcher.end_batch`: the one write into the log), and all
responses to a connection leave in one write. Work that no response waits for follows
(`Dispatcher.run_after_responses`: messages become visible to consumers, parked pulls get their responses). So small
reads share the cost of a batch, and large ones do not wait for others; neither do the reads of a peer that is the only
active one. All reads of a batch begin within the same millisecond: the store gives all records of one write the same
time, which must not be earlier than the messages.

        get_buffer -> buffer_updated -> CommandDecoder -> run, dispatch ... end_batch -> flush
        `---------------- connection.py ----------------'        read_batch.py    pending_writes.py
"""

import asyncio
from collections.abc import Callable
from time import monotonic, time_ns
from typing import Final, Protocol

from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.pending_writes import PendingWrites
from skylarkmq.broker.remoting.read_scheduling import ReadScheduler
from skylarkmq.protocol.command import RemotingCommand

BATCH_BYTES: Final = 64 * 1024
"""A read batch of this size ends, even if more data can be read."""
STALL_S: Final = 0.01
"""A read that took longer to serve delayed other connections."""


class CommandHandler(Protocol):
    """The part of a connection that is needed here."""

    def handle(self, commands: list[RemotingCommand]) -> None:
        """Dispatch the commands of a read."""


class ReadBatch:
    """The current read batch of one event loop; after its end the next one begins."""

    def __init__(self, dispatcher: Dispatcher, pending_writes: PendingWrites, scheduler: ReadScheduler) -> None:
        self.dispatcher = dispatcher
        self.pending_writes = pending_writes
        self.scheduler = scheduler
        self._is_end_due = False  # the batch ends after the poll's reads
        self._last: CommandHandler | None = None  # the connection of the last read
        self._batch_ms = 0  # Unix time at which the batch began

    def __repr__(self) -> str:
        return f"<ReadBatch of {self._batch_ms} is_end_due={self._is_end_due}>"

    def run(
        self, connection: CommandHandler, commands: list[RemotingCommand], size: int = 0, waited_s: float = 0.0
    ) -> None:
        """Handle the commands of a read of `size` bytes, or deferred ones; the responses are written at the end of the
        read batch."""
        dispatcher = self.dispatcher
        if (now_ms := time_ns() // 1_000_000) != self._batch_ms:
            self._batch_ms = now_ms
            if self._is_end_due:
                self._finish()
        self.pending_writes.begin_batch()
        is_late = waited_s >= dispatcher.max_wait_s
        if is_late:
            dispatcher.note_read_delay(waited_s)
        try:
            connection.handle(commands)
        finally:
            if is_late:
                dispatcher.note_read_delay(0.0)
            is_alone, self._last = connection is self._last, connection
            if is_alone or self.scheduler.excluded_bytes + size >= BATCH_BYTES:
                self.end()
            else:
                self.scheduler.exclude(size)
                if not self._is_end_due:
                    self._is_end_due = True
                    asyncio.get_running_loop().call_soon(self._end_poll)

    def end(self) -> None:
        """Finish the work of the reads so far, and write the responses."""
        try:
            self._finish()
        finally:
            self.scheduler.release()

    def flush_responses(self) -> None:
        """Write responses to requests of earlier batches outside of a batch, then do the work that no response waits
        for."""
        self.pending_writes.flush()
        self._run_and_flush(self.dispatcher.run_after_responses)

    def forget(self, connection: CommandHandler) -> None:
        """Release a closed connection."""
        if connection is self._last:
            self._last = None

    def _end_poll(self) -> None:
        """End the batch: all reads of the poll are handled."""
        self._is_end_due = False
        begun_s = monotonic()
        self.end()
        if monotonic() - begun_s > STALL_S:
            self.scheduler.record_stall(asyncio.get_running_loop().time())

    def _finish(self) -> None:
        self._run_and_flush(self.dispatcher.end_batch)
        self._run_and_flush(self.dispatcher.run_after_responses)

    def _run_and_flush(self, part: Callable[[], None]) -> None:
        self.pending_writes.begin_batch()
        try:
            part()
        finally:
            self.pending_writes.flush()
