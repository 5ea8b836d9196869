"""Tasks that live as long as their owner."""

import asyncio
import logging

import pytest

from skylarkmq.clients.sdk.connection.background_tasks import Background
from tests.clients.peer import until


async def test_a_failing_step_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    """An exception ends the step, not the task."""
    rounds: list[int] = []

    async def step() -> float | None:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise ValueError("broken")
        return None

    background = Background("test")
    repeat = background.repeat("step", step, interval_s=3600)
    await until(lambda: "broken" in caplog.text, "the traceback in the log")
    repeat.soon()
    await until(lambda: len(rounds) == 2)
    await background.stop()


async def test_soon_during_a_step_is_not_lost() -> None:
    """Another step follows."""
    gate = asyncio.Event()
    rounds: list[None] = []

    async def step() -> None:
        rounds.append(None)
        await gate.wait()

    background = Background("test")
    repeat = background.repeat("step", step, interval_s=3600)
    await until(lambda: rounds)
    repeat.soon()
    gate.set()
    await until(lambda: len(rounds) == 2)
    await background.stop()


async def test_a_step_may_return_its_pause() -> None:
    """The result is the time to the next step, in seconds."""
    rounds: list[None] = []

    async def step() -> float | None:
        rounds.append(None)
        return 0.0 if len(rounds) < 5 else None

    background = Background("test")
    background.repeat("step", step, interval_s=3600)
    await until(lambda: len(rounds) == 5)
    await background.stop()


async def test_a_failed_task_is_logged_under_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """No task fails without a log line."""

    async def fail() -> None:
        raise ValueError("broken")

    Background("owner").spawn("name", fail())
    with caplog.at_level(logging.ERROR):
        await until(lambda: "owner/name" in caplog.text)
    assert "ValueError: broken" in caplog.text


async def test_stop_waits_until_the_tasks_are_gone() -> None:
    """A canceled task may still clean up, and `stop` waits for it."""
    cleaned: list[None] = []

    async def task() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(None)

    background = Background("test")
    background.spawn("task", task())
    await asyncio.sleep(0)
    await background.stop()
    assert cleaned
