"""Tasks that live as long as their owner: named, logged if they fail, ended by `stop`.

`spawn` runs a coroutine; `repeat` runs a step at intervals, and at once on request. An exception of a step is logged
with its traceback, and the next step runs at its time; an exception of a spawned coroutine is logged too. `stop`
cancels all tasks and waits for their end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[float | None]]
"""One step. It returns the seconds until the next step, or None for the usual interval."""


class Repeat:
    """A step that runs repeatedly."""

    def __init__(self, name: str, step: Step, interval_s: float) -> None:
        self._name = name
        self._step = step
        self._interval_s = interval_s
        self._soon = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Repeat {self._name} every {self._interval_s:g} s>"

    def soon(self) -> None:
        """Run the next step now; if a step is running, another follows it."""
        self._soon.set()

    async def run(self) -> None:
        """Run steps until the task is canceled. The first step runs at once."""
        while True:
            self._soon.clear()
            pause_s = self._interval_s
            try:
                asked_s = await self._step()
                pause_s = self._interval_s if asked_s is None else asked_s
            except Exception:
                log.exception("background step failed, the next step follows task=%s", self._name)
            await self._wait(pause_s)

    async def _wait(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._soon.wait()
        except TimeoutError:
            pass  # the usual case: the interval has passed


class Background:
    """The tasks of one owner."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Background {self._owner} {len(self._tasks)} tasks>"

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as the task `owner/name`."""
        task = asyncio.create_task(coroutine, name=f"{self._owner}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def repeat(self, name: str, step: Step, interval_s: float) -> Repeat:
        """Run `step` at once, then `interval_s` seconds after the end of each step."""
        repeat = Repeat(f"{self._owner}/{name}", step, interval_s)
        self.spawn(name, repeat.run())
        return repeat

    async def finish(self) -> None:
        """Wait until all tasks have ended by themselves."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Cancel all tasks except the current one, and wait for their end."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed task=%s", task.get_name(), exc_info=error)
