"""The question before a command deletes or resets something."""

import asyncio
import io
import signal
import sys
from collections.abc import Callable

import pytest

from skylarkmq.clients.mqadmin.people.confirmation import confirm


class InterruptedTerminal(io.StringIO):
    """A terminal on which Ctrl-C is typed as soon as it shows a text."""

    def flush(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_right_after_the_question_ends_it(
    answers: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of asyncio would cancel the task, and the read would go on."""

    async def ask() -> None:
        confirm("The topic is deleted.", is_agreed=False)

    answers("y\n")
    monkeypatch.setattr(sys, "stderr", InterruptedTerminal())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ask())
