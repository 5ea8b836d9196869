"""The client processes of a history, which send or consume with the SDK and record what they do.

    produce(...)     sends messages: tests/harness/history_senders.py
    consume(...)     one member of a group: tests/harness/history_members.py

A process ends on SIGTERM (gracefully, exit code 0), on SIGKILL, or on an error. On SIGUSR1 it stops sending, but does
not end: the broker may still check its transactions.
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

from skylarkmq.clients.sdk.consuming.handler_dispatch import FAILED
from tests.harness.history_events import Journal, Warned
from tests.harness.history_members import Member
from tests.harness.history_plan import Consuming
from tests.harness.history_senders import Sender, StopSignals

_PR_SET_PDEATHSIG: Final = 1

log = logging.getLogger(__name__)


def produce(name: str, namesrv: str, directory: Path, seed: int) -> None:
    """Run the process of a producer."""
    _run_client(name, directory, lambda journal, ends: Sender(journal, Random(f"{seed} {name}"), ends).run(namesrv))


def consume(name: str, namesrv: str, directory: Path, plan: Consuming, slot: str) -> None:
    """Run the process of a member; `slot`: the name of its client slot."""
    _run_client(name, directory, lambda journal, ends: Member(journal, plan, slot).run(namesrv, directory, ends.stop))


ClientLoop = Callable[[Journal, StopSignals], Awaitable[None]]


def _run_client(name: str, directory: Path, client_loop: ClientLoop) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the run
    journal = Journal(directory, name)
    logging.basicConfig(
        filename=directory / f"{name}.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    logging.getLogger().addHandler(Warnings(journal))
    sys.excepthook = lambda *error: log.critical("ended", exc_info=error)
    asyncio.run(_until_stopped(journal, client_loop))


async def _until_stopped(journal: Journal, client_loop: ClientLoop) -> None:
    await client_loop(journal, StopSignals())


class Warnings(logging.Handler):
    """Records the SDK's warnings as events."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != FAILED:  # recorded already, and no cause of duplicates
            self._journal.record(Warned(text=f"{record.levelname} {record.getMessage()}"))
