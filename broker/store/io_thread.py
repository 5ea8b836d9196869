"""The thread for system calls that may take long and that nobody waits for: unlinking, closing what was unlinked."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

Result = TypeVar("Result")

NAME: Final = "skylark-cleaner"


class Helper(Protocol):
    """Makes calls one after the other, in the order of their submission."""

    def submit(self, call: Callable[[], Result], /) -> "Future[Result]":
        """Have `call` made."""

    def shutdown(self) -> None:
        """Wait until all calls are made, and stop."""


def helper_thread() -> Helper:
    """One thread, started by its first call."""
    return ThreadPoolExecutor(1, NAME)
