"""Work that takes longer than a request, such as sending thousands of dead letters again."""

import asyncio
from collections.abc import Awaitable, Callable

from skylarkmq.clients.errors import ClientError


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
        finally:
            if self.result is None:  # an error of this program, which asyncio logs
                self.result, self.has_failed = "failed: the log of this process has the reason", True
