"""The stacks of tasks and threads, for operators (GET_CONSUMER_RUNNING_INFO, 307, with jstackEnable).

The stack of a waiting task shows the whole chain of awaited coroutines, outermost first. asyncio itself keeps only the
first frame of it.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


def stack_of(task: asyncio.Task[Any]) -> str:
    """Return the frames of a task as text, outermost first."""
    return "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in _frames(task)).format())


def thread_stacks() -> Iterator[str]:
    """Yield the stack of each thread of this process as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        yield f"thread {names.get(number, number)}\n{''.join(traceback.format_stack(frame))}"


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            return  # an object of C, such as a future, has no frame
        yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
