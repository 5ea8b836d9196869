"""Jobs: work that takes longer than a request, such as sending thousands of dead letters again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from skylarkmq.clients.sdk.base.errors import ClientError, InvalidArgument

MAX_RUNNING: Final = 8
"""Jobs of one caller that run at the same time."""
MAX_JOBS: Final = 100
"""Jobs of one caller whose progress or result is kept."""

log = logging.getLogger(__name__)


class Job:
    """Work that takes longer than a request: its progress, and its result in one line."""

    def __init__(self, title: str, total: int, work: Callable[["Job"], Awaitable[str]]) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.result: str | None = None
        self.has_failed = False
        self._task = asyncio.create_task(self._run(work), name=title)

    def __repr__(self) -> str:
        return f"<Job {self.title} {self.done} of {self.total}>"

    @property
    def is_running(self) -> bool:
        """Return whether the work is not finished."""
        return not self._task.done()

    async def stop(self) -> None:
        """End the work."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait(self) -> None:
        """Wait until the work is finished."""
        await asyncio.wait([self._task])

    async def _run(self, work: Callable[["Job"], Awaitable[str]]) -> None:
        try:
            self.result = await work(self)
        except asyncio.CancelledError:
            self.result, self.has_failed = f"stopped after {self.done} of {self.total}", True
            raise
        except ClientError as error:
            self.result, self.has_failed = f"{error} ({self.done} of {self.total} were done)", True
        except Exception:
            log.exception("console job failed title=%r done=%d total=%d", self.title, self.done, self.total)
            self.result, self.has_failed = "failed: the log of this process has the reason", True


class Jobs:
    """The jobs of one caller by name: at most MAX_RUNNING run, and at most MAX_JOBS are kept."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}  # the oldest first

    def __repr__(self) -> str:
        return f"<Jobs kept={len(self._jobs)} running={len(self._running())}>"

    def get(self, name: str) -> Job | None:
        """Return the last job of this name, if it is still kept."""
        return self._jobs.get(name)

    def start(self, name: str, title: str, total: int, work: Callable[[Job], Awaitable[str]]) -> None:
        """Start a job. InvalidArgument if one of this name runs, or MAX_RUNNING others."""
        running = self._running()
        if name in running:
            raise InvalidArgument(f"{title}: this job is running already. Wait until it is finished.")
        if len(running) >= MAX_RUNNING:
            raise InvalidArgument(f"{title}: {MAX_RUNNING} jobs are running. Wait until one of them is finished.")
        self._jobs.pop(name, None)
        self._jobs[name] = Job(title, total, work)
        if len(self._jobs) > MAX_JOBS:
            del self._jobs[next(name for name, job in self._jobs.items() if not job.is_running)]

    async def stop(self) -> None:
        """End all jobs."""
        for job in list(self._jobs.values()):
            await job.stop()

    def _running(self) -> list[str]:
        return [name for name, job in self._jobs.items() if job.is_running]
