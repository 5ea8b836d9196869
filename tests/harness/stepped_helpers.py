"""Helper threads without threads: flushers and allocators do their work when the test calls them, in its thread.

    with stepped_helpers() as helpers:
        ...a store is loaded and started...
        helpers.sync(helpers.flushers[0])        run one sync of it now
        helpers.make_segments()                  create the requested segments now
        helpers.make_calls()                     run one of the slow calls in the background

A wait for a helper (a roll for its segment, a stop for its flushers) runs the helper's work at once. So one seed is one
run, and a test can order any two system calls as two threads could.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from skylarkmq.broker.store.files.allocation import Allocator
from skylarkmq.broker.store.flush.flusher import Flusher
from skylarkmq.broker.store.message_store import MessageStore
from tests.harness.stores import abandon

T = TypeVar("T")


class _NoThread:
    """Replaces the allocator's thread: joining it runs its work."""

    def __init__(self, run: Any) -> None:
        self.join = run


class _SteppedFuture(Future[Any]):
    """A wait for it runs the calls up to it."""

    def __init__(self, calls: "SteppedCalls") -> None:
        super().__init__()
        self._stepped_calls = calls

    def exception(self, timeout: float | None = None) -> BaseException | None:
        while not self.done():
            self._stepped_calls.step()
        return super().exception(timeout)


class SteppedCalls:
    """Replaces the thread of slow calls: they run one by one, and all of them before it ends."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self.is_immediate = False

    @property
    def is_waiting(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._calls)

    def submit(self, call: Callable[[], Any], /) -> "Future[Any]":
        future = _SteppedFuture(self)
        self._calls.append((call, future))
        if self.is_immediate:
            self.shutdown()
        return future

    def step(self) -> None:
        """Run the next call, if there is one; its exception is set on its future."""
        if self._calls:
            call, future = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call())
            except Exception as problem:  # noqa: BLE001 (as an executor does)
                future.set_exception(problem)

    def shutdown(self) -> None:
        while self._calls:
            self.step()

    def forget(self) -> None:
        self._calls.clear()


HelpersOfOne = tuple[list[Flusher], list[Allocator], list[SteppedCalls]]


class SteppedHelpers:
    """The helpers of the stores that were opened since the last `forget`."""

    def __init__(self) -> None:
        self.flushers: list[Flusher] = []
        self.allocators: list[Allocator] = []
        self.calls: list[SteppedCalls] = []

    def switch(self, helpers: HelpersOfOne) -> None:
        """Continue with the helpers of another simulated process: these lists are its own, empty at its start."""
        self.flushers, self.allocators, self.calls = helpers

    def sync(self, flusher: Flusher) -> None:
        """Run the next sync of its thread, up to the newest target."""
        target = flusher._submitted
        if target is not flusher.done and flusher.failure is None:
            flusher._sync(target)

    def make_segments(self) -> None:
        """Create the segments that were requested in the background."""
        for allocator in self.allocators:
            _work_off(allocator)

    def thread(self, *_: object) -> SteppedCalls:
        """Return a replacement of a thread for slow calls, which `make_calls` steps."""
        self.calls.append(SteppedCalls())
        return self.calls[-1]

    def make_calls(self) -> None:
        """Run one slow call of each store."""
        for calls in self.calls:
            calls.step()

    def run(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Return the result of a store's coroutine; slow calls run at once meanwhile."""
        for calls in self.calls:
            calls.is_immediate = True
        try:
            return asyncio.run(waiting)
        finally:
            for calls in self.calls:
                calls.is_immediate = False

    def forget(self, store: MessageStore) -> None:
        """Simulate the end of the store's process: helpers do nothing more, descriptors are closed."""
        for flusher in self.flushers:
            flusher._submitted = flusher.done
        for allocator in self.allocators:
            while not allocator._waiting.empty():
                allocator._waiting.get()
            allocator._thread = None
        for calls in self.calls:
            calls.forget()
        abandon(store)
        self.calls.clear()
        self.flushers.clear()
        self.allocators.clear()


def _work_off(allocator: Allocator) -> None:
    allocator._waiting.put(None)
    allocator._run()


@contextmanager
def stepped_helpers() -> Iterator[SteppedHelpers]:
    """Replace the threads of flushers, allocators and slow calls in this process."""
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
            allocator._thread = _NoThread(allocator._run)  # type: ignore[assignment] # only ever joined
            helpers.allocators.append(allocator)
        request(allocator, path, size)

    def take_now(allocator: Allocator, path: str, size: int) -> int:
        if allocator._thread is not None:
            _work_off(allocator)
        return take(allocator, path, size)

    with (
        patch("skylarkmq.broker.store.parts.helper_thread", helpers.thread),
        patch.multiple(Flusher, start=start, stop=stop, wait_idle=wait_idle),
        patch.multiple(Allocator, request=request_later, take=take_now),
    ):
        yield helpers
