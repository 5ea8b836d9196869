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

from skylarkmq.broker.ha.frames import data_head
from skylarkmq.broker.ha.link.catch_up import CHUNK_BYTES, CatchUp
from skylarkmq.broker.ha.link.connection import LinkConnection
from skylarkmq.broker.ha.link.log_bytes import LogBytes

FAR_BYTES: Final = 8 << 20
"""Up to here, all that a follower lacks in a segment is sent as one frame."""
NEAR_BYTES: Final = 1 << 20
"""Catch-up ends when the follower is behind by no more than this."""

log = logging.getLogger(__name__)


class Heads:
    """The head of the last DATA frame: followers at the same place share one checksum."""

    def __init__(self) -> None:
        self._key: tuple[int, int, int, int] | None = None
        self._head = b""

    def head(self, epoch: int, offset: int, committed: int, payload: memoryview) -> bytes:
        """Return the head of a frame with these bytes, which are the log's at this offset."""
        key = (epoch, offset, committed, len(payload))
        if key != self._key:
            self._key, self._head = key, data_head(epoch, offset, committed, payload)
        return self._head


class Feed:
    """Sends the log to one follower, in DATA of this epoch, from `sent` on. `committed` returns the committed end."""

    def __init__(
        self,
        connection: LinkConnection,
        source: LogBytes,
        heads: Heads,
        catch_up: CatchUp,
        committed: Callable[[], int],
        *,
        epoch: int,
        start: int,
    ) -> None:
        self.sent = start
        self._connection = connection
        self._log = source
        self._heads = heads
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
        """Send what was written since, unless catch-up is under way or the connection is clogged."""
        connection = self._connection
        if self._task is not None or connection.is_closed:
            return
        try:
            while (behind := self._log.end - self.sent) > 0 and not connection.is_clogged:
                if behind > FAR_BYTES:
                    self._begin_catch_up()
                    return
                self._send(self._log.view(self.sent, behind))
        except OSError as error:
            connection.cut(f"the log cannot be read at {self.sent}: {error}")

    def stop(self) -> None:
        """End catch-up: the connection is closed."""
        if self._task is not None:
            self._task.cancel()

    def _send(self, payload: memoryview) -> None:
        head = self._heads.head(self._epoch, self.sent, self._committed(), payload)
        self.sent += len(payload)
        self._connection.send_data(head, payload)

    def _begin_catch_up(self) -> None:
        log.info("catch-up begins peer=%s at=%d behind=%d", self._connection.peer, self.sent, self._log.end - self.sent)
        self._task = asyncio.get_running_loop().create_task(self._catch_up_from_files())
        self._task.add_done_callback(self._caught_up)

    async def _catch_up_from_files(self) -> None:
        while (behind := self._log.end - self.sent) > NEAR_BYTES and not self._connection.is_closed:
            part = self._log.file_range(self.sent, min(behind, CHUNK_BYTES))
            self.sent += await self._catch_up.send(
                *(self._connection, part, self._log.whole_records, self._epoch, self.sent, self._committed)
            )

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            log.info("catch-up ends peer=%s at=%d", self._connection.peer, self.sent)
            self.push()
        elif isinstance(error, OSError):
            self._connection.cut(f"catch-up failed at {self.sent}: {error}")
        else:
            self._connection.cut(f"catch-up failed at {self.sent}")
            raise error
