"""Pending writes: the output of all connections, sent in order, and the bytes that peers have not taken yet.

Output of a connection is collected in its `ConnectionWriter` during a read batch and leaves at the end of the batch.
Most of it is bytes and leaves in one write. A response may also have regions of files for its body:

    long and in memory       by sendfile                                                      sendfile.py
    possibly not in memory   by sendfile in a thread
    short and in memory      from the mapping, in the same call as the other bytes            write_buffers.py

        write, write_regions ... -> PendingWrites.flush -> ConnectionWriter.flush -> transport
                                                              `-> queue: bytes | region ... -> sendfile, transport

From the first region that leaves on its own until all output is sent, pieces are kept in a queue. Later output is
appended to it, so nothing overtakes. A region is sent only while the transport has nothing to write. When the socket is
full, the rest of the region waits (it may leave memory meanwhile; if the wait is long, a thread sends it). A file is
pinned while one of its regions is queued, so that its deletion does not disturb the transfer. If the file has to be
released early, the connection is closed, since half a response cannot be taken back.

Unsent output, in the transport or here, is the peer's backlog; it is counted per peer and in total. The reading half of
the connection is notified when the backlog exceeds its limit, and when it is empty.
"""

import asyncio

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection_writer import ConnectionWriter
from skylarkmq.broker.remoting.sendfile import FileSends, TransferStatistics


class PendingWrites:
    """The state shared by the writers of all connections of one event loop."""

    def __init__(self, config: RemotingConfig) -> None:
        self.config = config
        self.backlog_bytes = 0
        self.files = FileSends()
        self._dirty: list[ConnectionWriter] = []
        self._flush_due = False

    def __repr__(self) -> str:
        return f"<PendingWrites {self.backlog_bytes} bytes wait, {self.files!r}>"

    def statistics(self) -> TransferStatistics:
        """Return the current figures."""
        return self.files.statistics(self.backlog_bytes)

    @property
    def sent_bytes(self) -> int:
        """Return all bytes that were sent since the start, or handed to a transport."""
        files = self.files
        return files.copied_bytes + files.sent_bytes + files.cold_sent_bytes

    def begin_batch(self) -> None:
        """Begin a read batch; the caller flushes at its end."""
        self._flush_due = True

    def schedule_flush(self, writer: ConnectionWriter) -> None:
        """Flush a writer at the end of the read batch, or in the next event-loop iteration outside of one."""
        self._dirty.append(writer)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write the collected output of all writers."""
        self._flush_due = False
        dirty, self._dirty = self._dirty, []
        for writer in dirty:
            writer.flush()

    def close(self) -> None:
        """Stop the threads; all connections are closed."""
        self.files.close()
