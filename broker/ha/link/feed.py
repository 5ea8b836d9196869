"""The bytes of the log on their way to one follower.

    behind by at most FAR_BYTES      the batch itself, from the mapping, as soon as it is written: one write for a batch
    behind by more                   catch-up: `sendfile` in a thread (`broker/ha/link/catch_up.py`), at a bounded rate

A feed never queues more than HIGH_BYTES in its connection. A follower that reads more slowly than the leader appends
falls behind and is served from the files, so its memory in the leader does not grow.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.ha.link.catch_up import CHUNK_BYTES, CatchUp
from skylarkmq.broker.ha.link.connection import LinkConnection
from skylarkmq.broker.ha.link.frames import data_head
from skylarkmq.broker.ha.link.log_bytes import LogBytes

FAR_BYTES: Final = 8 << 20
"""Up to here, all that a follower lacks in a segment is sent as one frame."""
NEAR_BYTES: Final = 1 << 20
"""Catch-up ends when the follower is behind by no more than this."""

log = logging.getLogger(__name__)


class LastFrame:
    """The DATA frame that was sent last: followers at the same place share its view of the log and its checksum."""

    def __init__(self, source: LogBytes) -> None:
        self._log = source
        self._place = (-1, -1, -1)  # offset, end, epoch
        self._payload = memoryview(b"")
        self._head: tuple[int, bytes] | None = None  # committed, head

    def __repr__(self) -> str:
        return f"<LastFrame {self._place}>"

    def parts(self, epoch: int, offset: int, end: int, committed: int) -> tuple[bytes, memoryview]:
        """Return head and payload of a frame with the log from `offset` to `end`, or to the end of the segment.

        Raises OSError.
        """
        if self._place != (offset, end, epoch):
            self._payload, self._head = self._log.view(offset, end - offset), None
            self._place = (offset, end, epoch)
        if self._head is None or self._head[0] != committed:
            self._head = (committed, data_head(epoch, offset, committed, self._payload))
        return self._head[1], self._payload

    def forget(self) -> None:
        """Release the view: it keeps a segment from being removed."""
        self._place, self._payload = (-1, -1, -1), memoryview(b"")


class Feed:
    """Sends the log to one follower, in DATA of this epoch, from `sent` on. `committed` returns the committed end."""

    def __init__(
        self,
        connection: LinkConnection,
        source: LogBytes,
        last_frame: LastFrame,
        catch_up: CatchUp,
        committed: Callable[[], int],
        *,
        epoch: int,
        start: int,
    ) -> None:
        self.sent = start
        self._connection = connection
        self._log = source
        self._last_frame = last_frame
        self._catch_up = catch_up
        self._committed = committed
        self._epoch = epoch
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Feed {self._connection.peer} sent={self.sent} catching_up={self.is_catching_up}>"

    @property
    def is_catching_up(self) -> bool:
        """Whether bytes are read from the files."""
        return self._task is not None

    def push(self) -> None:
        """Send what was written since, unless catch-up is under way or the connection is clogged. `LastFrame.forget`
        follows, once all feeds were pushed."""
        connection = self._connection
        if self._task is not None or connection.is_closed:
            return
        try:
            while (end := self._log.end) > self.sent and not connection.is_clogged:
                if end - self.sent > FAR_BYTES:
                    self._begin_catch_up()
                    return
                head, payload = self._last_frame.parts(self._epoch, self.sent, end, self._committed())
                self.sent += len(payload)
                connection.send_data(head, payload)
        except OSError as error:
            connection.cut(f"the log cannot be read at {self.sent}: {error}")

    def stop(self) -> None:
        """End catch-up: the connection is closed."""
        if self._task is not None:
            self._task.cancel()

    def _begin_catch_up(self) -> None:
        log.info("catch-up begins peer=%s at=%d behind=%d", self._connection.peer, self.sent, self._log.end - self.sent)
        self._task = asyncio.get_running_loop().create_task(self._catch_up_from_files())
        self._task.add_done_callback(self._caught_up)

    async def _catch_up_from_files(self) -> None:
        while (behind := self._log.end - self.sent) > NEAR_BYTES and not self._connection.is_closed:
            part = self._log.file_range(self.sent, min(behind, CHUNK_BYTES))
            self.sent += await self._catch_up.send(
                self._connection, part, self._log.whole_records, self._epoch, self.sent, self._committed
            )

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            log.info("catch-up ends peer=%s at=%d", self._connection.peer, self.sent)
            self.push()
            self._last_frame.forget()
        elif isinstance(error, OSError):
            self._connection.cut(f"catch-up failed at {self.sent}: {error}")
        else:
            self._connection.cut(f"catch-up failed at {self.sent}")
            raise error
