"""Calls that wait for the disk, in a thread; their results return to the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor


class DiskCalls:
    """`run(call, then)`: `then` is called on the loop, with None or the OSError of the call."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    def run(self, call: Callable[[], None], then: Callable[[OSError | None], None]) -> None:
        """Run a call in a thread. Calls of one executor with one thread keep their order."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, _caught, call)
        future.add_done_callback(lambda done: None if done.cancelled() else then(done.result()))


def _caught(call: Callable[[], None]) -> OSError | None:
    try:
        call()
    except OSError as error:
        return error
    return None
