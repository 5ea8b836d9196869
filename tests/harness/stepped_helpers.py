"""Helper threads that do not run: flushers and allocators made in here work when they are told to, in this thread.

    with stepped_helpers() as helpers:
        ...a store is loaded and started...
        helpers.sync(helpers.flushers[0])        one round of it, now
        helpers.make_segments()                  what the allocator was asked for, now

What waits for a helper (a roll for its segment, a stop for its flushers) makes it do its work on the spot. So one seed
is one run, and a test can put any two system calls into any order that two threads could have put them in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from broker.store.allocate import Allocator
from broker.store.flush import Flusher
from broker.store.message_store import MessageStore
from tests.harness.stores import abandon


class _NoThread:
    """Stands for the allocator's thread: joining it is letting it finish."""

    def __init__(self, run: Any) -> None:
        self.join = run


class SteppedHelpers:
    """The helpers of the stores that were made since the last `forget`."""

    def __init__(self) -> None:
        self.flushers: list[Flusher] = []
        self.allocators: list[Allocator] = []

    def sync(self, flusher: Flusher) -> None:
        """What its thread would do next: the newest target."""
        target = flusher._submitted
        if target is not flusher.done and flusher.failure is None:
            flusher._sync(target)

    def make_segments(self) -> None:
        """What was asked for in the background."""
        for allocator in self.allocators:
            _work_off(allocator)

    def forget(self, store: MessageStore) -> None:
        """The store's process is gone: helpers do nothing any more, descriptors are closed."""
        for flusher in self.flushers:
            flusher._submitted = flusher.done
        for allocator in self.allocators:
            while not allocator._waiting.empty():
                allocator._waiting.get()
            allocator._thread = None
        abandon(store)
        self.flushers.clear()
        self.allocators.clear()


def _work_off(allocator: Allocator) -> None:
    allocator._waiting.put(None)
    allocator._run()


@contextmanager
def stepped_helpers() -> Iterator[SteppedHelpers]:
    """Flushers and allocators of this process start no threads in here."""
    helpers = SteppedHelpers()
    request, take = Allocator.request, Allocator.take

    def start(flusher: Flusher) -> None:
        helpers.flushers.append(flusher)

    def stop(flusher: Flusher) -> None:
        flusher._stopping = True
        helpers.sync(flusher)

    def wait_idle(flusher: Flusher) -> None:
        helpers.sync(flusher)

    def request_later(allocator: Allocator, path: str, size: int) -> None:
        if allocator._thread is None:
            allocator._thread = _NoThread(lambda: _work_off(allocator))  # type: ignore[assignment] # only ever joined
            helpers.allocators.append(allocator)
        request(allocator, path, size)

    def take_now(allocator: Allocator, path: str, size: int) -> int:
        if allocator._thread is not None:
            _work_off(allocator)
        return take(allocator, path, size)

    with (
        patch.multiple(Flusher, start=start, stop=stop, wait_idle=wait_idle),
        patch.multiple(Allocator, request=request_later, take=take_now),
    ):
        yield helpers
