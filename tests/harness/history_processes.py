"""The processes of a history: the broker on ports of its own, and clients, each in a slot that is filled again.

What befalls them is told before and after. A process that ends without being asked is told of, too, and replaced; only
producers may, when they have said so (`BY_ITSELF`).
"""

import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from tests.harness.daemon import MQBROKER, STOP_LIMIT_S, Daemon, variables
from tests.harness.history_events import BY_ITSELF, SUFFIX, Broker, Journal, Process
from tests.harness.ports import LOOPBACK, free_ports

CLIENT_STOP_S: Final = 20.0
WAIT_S: Final = 0.05
NAMES: Final = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")

_processes: Final = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.harness.history_clients"])


class TheBroker:
    """The daemon in `directory`; its output is in `broker.txt`, that of all its lives."""

    def __init__(self, directory: Path, settings: Mapping[str, object], journal: Journal) -> None:
        self.is_up = False
        self._directory = directory
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._environment = variables(self._ports | dict(settings))
        self._output = directory / "broker.txt"
        self._journal = journal
        self._daemon: Daemon

    def __repr__(self) -> str:
        return f"<TheBroker {self.namesrv} {'up' if self.is_up else 'down'}>"

    @property
    def namesrv(self) -> str:
        """Its name server."""
        return f"{LOOPBACK}:{self._ports['embeddedNamesrvPort']}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._ports["listenPort"]

    def start(self) -> None:
        """And wait until it is ready."""
        self._tell("starting")
        with self._output.open("ab") as out:
            process = subprocess.Popen(
                MQBROKER,
                env=self._environment | {"PYTHONPATH": os.getcwd()},
                cwd=self._directory,
                stdout=out,
                stderr=out,
            )
        self._daemon = Daemon(process, self._output, self._ports)
        self._daemon.wait_ready()
        self.is_up = True
        self._tell("ready")

    def kill(self) -> None:
        """By SIGKILL."""
        self._end("killing", signal.SIGKILL, "killed")

    def stop(self) -> int:
        """As an operator does; its exit code."""
        return self._end("stopping", signal.SIGTERM, "stopped")

    def pause(self) -> None:
        """By SIGSTOP."""
        self._tell("pausing")
        self.is_up = False
        self._daemon.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """After a pause."""
        self._daemon.process.send_signal(signal.SIGCONT)
        self.is_up = True
        self._tell("resumed")

    def forget(self) -> None:
        """Nothing of it stays, whatever happened."""
        self._daemon.process.kill()
        self._daemon.process.wait()

    def look(self) -> None:
        """Whether it still runs."""
        if self.is_up and self._daemon.process.poll() is not None:
            self._tell("ended")
            self.start()

    def _end(self, before: str, number: signal.Signals, after: str) -> int:
        self._tell(before)
        self.is_up = False
        self._daemon.process.send_signal(number)
        try:
            code = self._daemon.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._tell("ended")  # it did not
            self._daemon.process.kill()
            code = self._daemon.process.wait()
        self._tell(after)
        return code

    def _tell(self, state: str) -> None:
        self._journal.tell(Broker(state=state))


class Slot:
    """One client after the other: `make(name)` gives what a process runs, and with what."""

    def __init__(
        self,
        name: str,
        group: str,
        make: Callable[[str], tuple[Callable[..., None], tuple[Any, ...]]],
        journal: Journal,
    ) -> None:
        self.name = name
        self._group = group
        self._make = make
        self._journal = journal
        self._count = 0
        self._client = self._quiet = ""
        self._process: BaseProcess
        self._is_asked = True

    def __repr__(self) -> str:
        return f"<Slot {self._client}>"

    def spawn(self) -> None:
        """The next client."""
        self._client = f"{self.name}.{self._count}"
        self._count += 1
        self._is_asked = False
        self._tell("spawned")
        target, arguments = self._make(self._client)
        self._process = _processes.Process(target=target, args=arguments, name=self._client)
        self._process.start()

    def kill(self) -> None:
        """By SIGKILL."""
        self._is_asked = True
        self._tell("killing")
        self._process.kill()
        self._process.join()
        self._tell("killed")

    def stop(self) -> None:
        """Gracefully."""
        self.ask_to_stop()
        self.wait_stopped()

    def ask_to_stop(self) -> None:
        """By SIGTERM, once it can hear it."""
        limit_s = time.monotonic() + CLIENT_STOP_S
        while not self.has_told("ready") and self._process.is_alive() and time.monotonic() < limit_s:
            time.sleep(WAIT_S)
        self._is_asked = True
        self._tell("stopping")
        self._process.terminate()

    def wait_stopped(self) -> None:
        """Until it has."""
        self._process.join(CLIENT_STOP_S)
        if self._process.exitcode != 0:
            self._tell("ended", f"asked to stop, exit code {self._process.exitcode}")
            self._process.kill()
            self._process.join()
        self._tell("stopped")

    def pause(self) -> None:
        """By SIGSTOP."""
        self._tell("pausing")
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """After a pause."""
        self._signal(signal.SIGCONT)
        self._tell("resumed")

    def be_quiet(self) -> None:
        """Send no more; whoever is not ready yet hears of it the next time."""
        if self._quiet != self._client and self.has_told("ready"):
            self._quiet = self._client
            self._signal(signal.SIGUSR1)

    def forget(self) -> None:
        """Nothing of it stays, whatever happened."""
        if self._client:
            self._process.kill()
            self._process.join()

    def has_told(self, word: str) -> bool:
        """Whether the client has told something with this word in it."""
        journal = self._journal.directory / f"{self._client}{SUFFIX}"
        return journal.exists() and f'"{word}"'.encode() in journal.read_bytes()

    def look(self) -> None:
        """Replace a client that has ended by itself; it may, if it has said so."""
        if self._is_asked or self._process.is_alive():
            return
        if self.has_told(BY_ITSELF):
            self._tell("killed")
        else:
            self._tell("ended", f"exit code {self._process.exitcode}")
        self.spawn()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        if self._process.is_alive():
            os.kill(self._process.pid, number)

    def _tell(self, state: str, why: str = "") -> None:
        self._journal.tell(Process(name=self._client, state=state, group=self._group, why=why))
