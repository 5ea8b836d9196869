"""The clients of a history: processes that send or consume with the SDK, and tell what they do.

    produce(...)     what tests/harness/history_senders.py sends
    consume(...)     one member of a group (tests/harness/history_members.py)

A process ends when it gets SIGTERM (gracefully: exit code 0), when it is killed, or with what went wrong. SIGUSR1 ends
the sending, but not the process: the broker may have to ask how transactions ended.
"""

import asyncio
import ctypes
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final

from skylarkmq.clients.consuming.handler_dispatch import FAILED
from tests.harness.history_events import Journal, Warned
from tests.harness.history_members import Member
from tests.harness.history_plan import Consuming
from tests.harness.history_senders import Ends, Sender

_PR_SET_PDEATHSIG: Final = 1

log = logging.getLogger(__name__)


def produce(name: str, namesrv: str, directory: Path, seed: int) -> None:
    """The process of a producer."""
    _live(name, directory, lambda journal, ends: Sender(journal, Random(f"{seed} {name}"), ends).run(namesrv))


def consume(name: str, namesrv: str, directory: Path, plan: Consuming, slot: str) -> None:
    """The process of a member; `slot` names the place that it fills."""
    _live(name, directory, lambda journal, ends: Member(journal, plan, slot).run(namesrv, directory, ends.stop))


Life = Callable[[Journal, Ends], Awaitable[None]]


def _live(name: str, directory: Path, life: Life) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody stays behind when a run is given up
    journal = Journal(directory, name)
    logging.basicConfig(
        filename=directory / f"{name}.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    logging.getLogger().addHandler(Warnings(journal))
    sys.excepthook = lambda *error: log.critical("ended", exc_info=error)
    asyncio.run(_until_stopped(journal, life))


async def _until_stopped(journal: Journal, life: Life) -> None:
    await life(journal, Ends())


class Warnings(logging.Handler):
    """The SDK's warnings, as events."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != FAILED:  # which is told already, and no trouble
            self._journal.tell(Warned(text=f"{record.levelname} {record.getMessage()}"))
