"""The files of accounts beside an event loop: their polls and changes run in threads, one at a time."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from skylarkmq.broker.access.plain_acl.files import AclFiles

POLL_S: Final = 0.5
"""RocketMQ's period. A changed file is in effect after at most two of them."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class FilesStatistics(msgspec.Struct, frozen=True):
    """`reloads`: polls that found changed files since the start. `broken`: files with an error."""

    reloads: int
    broken: int


class ReloadedFiles:
    """The opened files, polled while it runs. `rules` are the current ones; a change makes a new object."""

    def __init__(self, files: AclFiles, poll_s: float = POLL_S) -> None:
        self._files = files
        self.rules = files.rules
        self._poll_s = poll_s
        self._busy = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._reloads = 0
        self._problem = ""

    def __repr__(self) -> str:
        return f"<ReloadedFiles reloads={self._reloads} {self._files!r}>"

    @property
    def paths(self) -> list[Path]:
        """Return the files that exist."""
        return list(self._files.paths)

    def statistics(self) -> FilesStatistics:
        """Return the current figures."""
        return FilesStatistics(self._reloads, len(self._files.problems))

    def start(self) -> None:
        """Poll the files from now on."""
        self._task = asyncio.get_running_loop().create_task(self._poll())

    async def stop(self) -> None:
        """Stop polling; a poll or a change in progress is finished first."""
        if self._task is None:
            return
        async with self._busy:
            self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None

    async def run(self, change: Callable[[AclFiles], T]) -> T:
        """Return the result of a change of the files, made in a thread. Raises its errors."""
        async with self._busy:
            try:
                return await asyncio.to_thread(change, self._files)
            finally:
                self.rules = self._files.rules

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                self._reloads += await self.run(AclFiles.poll)
                problem = ""
            except Exception as error:  # noqa: BLE001 (without polls, revoked accounts would stay valid)
                problem = str(error) or type(error).__name__
            if problem and problem != self._problem:
                log.warning("files of accounts not polled reason=%s", problem)
            self._problem = problem
