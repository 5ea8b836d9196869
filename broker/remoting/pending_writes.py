"""Transfer: what leaves our connections, in order, and what their peers have not taken yet.

Everything that is written to a connection during a turn is gathered in its `ConnectionWriter` and leaves at the end of the turn.
Most of it is bytes, and leaves in one write. An answer may also have regions of files for its body:

    long and in memory      by sendfile                                     file_sends.py
    maybe not in memory     by sendfile in a thread
    short and in memory     straight from the mapping, with everything else by one call      pieces.py

        write, write_regions ... -> PendingWrites.flush -> ConnectionWriter.flush -> transport
                                                        `-> queue: bytes | region ... -> sendfile, transport

From the first region that leaves by itself until all is gone, pieces stand in a queue, and whatever is written later
stands behind them: nothing overtakes. A region goes only while the transport has nothing to write; when the socket is
full, the rest of the region waits for it (it may have left memory by then, and is sent by a thread if that takes long).
A file is held while a region of it stands here, so that its deletion does not disturb the transfer; whoever is told to
let go loses the connection, for half an answer cannot be taken back.

What waits, in the transport or here, counts as the peer's backlog, one by one and all together; the reading half of the
connection is told when that is too much, and when all is gone.
"""

import asyncio

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection_writer import ConnectionWriter
from skylarkmq.broker.remoting.sendfile import FileSends, TransferStatistics


class Transfer:
    """What the outputs of all connections of one event loop share."""

    def __init__(self, config: RemotingConfig) -> None:
        self.config = config
        self.backlog_bytes = 0
        self.files = FileSends()
        self._dirty: list[ConnectionWriter] = []
        self._flush_due = False

    def __repr__(self) -> str:
        return f"<PendingWrites {self.backlog_bytes} bytes wait, {self.files!r}>"

    def statistics(self) -> TransferStatistics:
        """The figures now."""
        return self.files.statistics(self.backlog_bytes)

    @property
    def sent_bytes(self) -> int:
        """Everything that has left since the start, or was handed to a transport."""
        files = self.files
        return files.copied_bytes + files.sent_bytes + files.cold_sent_bytes

    def begin_batch(self) -> None:
        """Whoever calls this will flush."""
        self._flush_due = True

    def schedule_flush(self, writer: ConnectionWriter) -> None:
        """Remember an output; it is written at the end of the turn, or when the loop comes to it."""
        self._dirty.append(writer)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what the outputs gathered."""
        self._flush_due = False
        dirty, self._dirty = self._dirty, []
        for writer in dirty:
            writer.flush()

    def close(self) -> None:
        """End the threads; all connections are gone."""
        self.files.close()
