"""The thread for slow system calls whose results are not awaited: unlinking and closing deleted files."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

Result = TypeVar("Result")

NAME: Final = "skylark-cleaner"


class Helper(Protocol):
    """Runs calls one after the other, in the order of their submission."""

    def submit(self, call: Callable[[], Result], /) -> "Future[Result]":
        """Submit a call."""

    def shutdown(self) -> None:
        """Wait until all calls have run, and stop."""


def helper_thread() -> Helper:
    """Return an executor of one thread, started by the first call."""
    return ThreadPoolExecutor(1, NAME)
