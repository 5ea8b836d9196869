"""The event loop behind `skylarkmq.blocking`: one in each process, in a daemon thread.

The loop starts with its first use and ends with the process. The child of a fork starts a loop of its own.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, Final, TypeVar

from skylarkmq.clients.sdk.base.errors import ClientClosed, InvalidArgument

LOOP_CHECK_S: Final = 1.0
"""How often a waiting call checks that the loop still runs."""

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cleanups: set[asyncio.Task[None]] = set()
        self.thread = threading.Thread(target=self.loop.run_forever, name="skylark-clients", daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread {self.thread.name} {'runs' if self.thread.is_alive() else 'ended'}>"


@cache
def _loop_thread() -> LoopThread:
    return LoopThread()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_loop_thread.cache_clear)


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the one loop of this process; a child of a fork gets its own with its first object."""
    return _loop_thread().loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result. ClientClosed if the loop has ended, InvalidArgument on the loop's own thread."""
    runner = _loop_thread()
    if runner.thread is threading.current_thread():
        coroutine.close()
        raise InvalidArgument("this function runs on the loop of skylarkmq.blocking, which a blocking call would stop")
    future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, runner.loop)
    try:
        while True:
            try:
                return future.result(LOOP_CHECK_S)
            except TimeoutError:
                if future.done():
                    return future.result()  # it ended meanwhile, or the error is the coroutine's own
                if not runner.thread.is_alive():
                    raise ClientClosed("the loop of skylarkmq.blocking has ended: nothing runs here") from None
    except BaseException:
        future.cancel()  # what interrupted the caller ends the call too
        raise


def clean_up(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, from any thread. Do not wait for it on the loop's own thread: the garbage collector
    may finish an abandoned iterator there.
    """
    runner = _loop_thread()
    if runner.thread is not threading.current_thread():
        run(coroutine)
        return
    task = runner.loop.create_task(coroutine)
    runner.cleanups.add(task)
    task.add_done_callback(runner.cleanups.discard)
