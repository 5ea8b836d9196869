"""The processes of a history: a broker with its own ports, and clients, each in a slot that is refilled.

Faults are recorded before and after they happen. A process that ends unexpectedly is recorded and replaced; only
producers may end by themselves, after recording that (`KILLED_ITSELF`).
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

from tests.harness.daemon import MQBROKER, Daemon, variables
from tests.harness.history_events import KILLED_ITSELF, SUFFIX, Broker, Journal, Process
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports

WAIT_S: Final = 0.05
NAMES: Final = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")

_processes: Final = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.harness.history_clients"])


class BrokerProcess:
    """The daemon in `directory`; `broker.txt` has the output of all its processes."""

    def __init__(self, directory: Path, settings: Mapping[str, object], journal: Journal) -> None:
        self.is_up = False
        self._directory = directory
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._environment = variables(self._ports | dict(settings))
        self._output = directory / "broker.txt"
        self._journal = journal
        self._daemon: Daemon

    def __repr__(self) -> str:
        return f"<BrokerProcess {self.namesrv} {'up' if self.is_up else 'down'}>"

    @property
    def namesrv(self) -> str:
        """Return the address of its name server."""
        return f"{LOOPBACK}:{self._ports['embeddedNamesrvPort']}"

    @property
    def port(self) -> int:
        """Return its listening port."""
        return self._ports["listenPort"]

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._record("starting")
        with self._output.open("ab") as out:
            process = subprocess.Popen(
                MQBROKER,
                env=self._environment | {"PYTHONPATH": os.path.abspath("src")},
                cwd=self._directory,
                stdout=out,
                stderr=out,
            )
        self._daemon = Daemon(process, self._output, self._ports)
        self._daemon.wait_ready()
        self.is_up = True
        self._record("ready")

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        self._end("killing", signal.SIGKILL, "killed")

    def stop(self) -> int:
        """Stop it by SIGTERM, and return its exit code."""
        return self._end("stopping", signal.SIGTERM, "stopped")

    def pause(self) -> None:
        """Pause it by SIGSTOP."""
        self._record("pausing")
        self.is_up = False
        self._daemon.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it after a pause."""
        self._daemon.process.send_signal(signal.SIGCONT)
        self.is_up = True
        self._record("resumed")

    def forget(self) -> None:
        """Kill the process, whatever its state."""
        self._daemon.process.kill()
        self._daemon.process.wait()

    def check_alive(self) -> None:
        """Record an unexpected end, and restart it."""
        if self.is_up and self._daemon.process.poll() is not None:
            self._record("ended")
            self.start()

    def _end(self, before: str, number: signal.Signals, after: str) -> int:
        self._record(before)
        self.is_up = False
        self._daemon.process.send_signal(number)
        try:
            code = self._daemon.process.wait(PROCESS_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._record("ended")  # it did not stop
            self._daemon.process.kill()
            code = self._daemon.process.wait()
        self._record(after)
        return code

    def _record(self, state: str) -> None:
        self._journal.record(Broker(state=state))


class ClientSlot:
    """A sequence of clients. `make(name)` returns the function of a process, and its arguments."""

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
        self._is_expected_to_end = True

    def __repr__(self) -> str:
        return f"<ClientSlot {self._client}>"

    def spawn(self) -> None:
        """Start the next client."""
        self._client = f"{self.name}.{self._count}"
        self._count += 1
        self._is_expected_to_end = False
        self._record("spawned")
        target, arguments = self._make(self._client)
        self._process = _processes.Process(target=target, args=arguments, name=self._client)
        self._process.start()

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        self._is_expected_to_end = True
        self._record("killing")
        self._process.kill()
        self._process.join()
        self._record("killed")

    def stop(self) -> None:
        """Stop it gracefully."""
        self.request_stop()
        self.wait_stopped()

    def request_stop(self) -> None:
        """Send SIGTERM, once it handles that."""
        limit_s = time.monotonic() + PROCESS_LIMIT_S
        while not self.has_recorded("ready") and self._process.is_alive() and time.monotonic() < limit_s:
            time.sleep(WAIT_S)
        self._is_expected_to_end = True
        self._record("stopping")
        self._process.terminate()

    def wait_stopped(self) -> None:
        """Wait until it has stopped."""
        self._process.join(PROCESS_LIMIT_S)
        if self._process.exitcode != 0:
            self._record("ended", f"asked to stop, exit code {self._process.exitcode}")
            self._process.kill()
            self._process.join()
        self._record("stopped")

    def pause(self) -> None:
        """Pause it by SIGSTOP."""
        self._record("pausing")
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it after a pause."""
        self._signal(signal.SIGCONT)
        self._record("resumed")

    def stop_sending(self) -> None:
        """Make it stop sending; a client that is not ready yet is handled by the next call."""
        if self._quiet != self._client and self.has_recorded("ready"):
            self._quiet = self._client
            self._signal(signal.SIGUSR1)

    def forget(self) -> None:
        """Kill the process, whatever its state."""
        if self._client:
            self._process.kill()
            self._process.join()

    def has_recorded(self, word: str) -> bool:
        """Return whether the client has recorded an event with this word."""
        journal = self._journal.directory / f"{self._client}{SUFFIX}"
        return journal.exists() and f'"{word}"'.encode() in journal.read_bytes()

    def check_alive(self) -> None:
        """Replace a client that has ended unexpectedly; it may end by itself after recording that."""
        if self._is_expected_to_end or self._process.is_alive():
            return
        if self.has_recorded(KILLED_ITSELF):
            self._record("killed")
        else:
            self._record("ended", f"exit code {self._process.exitcode}")
        self.spawn()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        if self._process.is_alive():
            os.kill(self._process.pid, number)

    def _record(self, state: str, why: str = "") -> None:
        self._journal.record(Process(name=self._client, state=state, group=self._group, why=why))
