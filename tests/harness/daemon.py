"""A daemon in a process of its own, started by its command and queried over its ports.

    with running(["mqbroker"], directory) as daemon:
        daemon.namesrv                      "127.0.0.1:41233"
        daemon.page("/readyz")              status and decoded body
        daemon.stop(signal.SIGTERM)         exit code

The daemon gets free ports, and all its files are below the directory. It has started once /readyz returns 200.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.store_check import assert_consistent

STORE: Final = "store"
POLL_S: Final = 0.05

MQBROKER: Final = (sys.executable, "-m", "skylarkmq.broker")
MQNAMESRV: Final = (sys.executable, "-c", "from skylarkmq.broker.app.cli import mqnamesrv; mqnamesrv()")


class Daemon:
    """A started process and the addresses that it listens on."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, ports: Mapping[str, int]) -> None:
        self.process = process
        self._output = output
        self.broker_port = ports["listenPort"]
        self.namesrv_port = ports["embeddedNamesrvPort"]
        self.health_port = ports["metricsPromExporterPort"]

    @property
    def namesrv(self) -> str:
        return f"{LOOPBACK}:{self.namesrv_port}"

    @property
    def output(self) -> str:
        """Return its stdout and stderr so far."""
        return self._output.read_text(errors="replace")

    def page(self, path: str) -> tuple[int, Any]:
        """Return status and decoded body of a health page. Raises OSError if it does not respond."""
        try:
            with urllib.request.urlopen(
                f"http://{LOOPBACK}:{self.health_port}{path}", timeout=WAIT_LIMIT_S
            ) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def wait_ready(self) -> None:
        """Wait until it is ready. Raises AssertionError if it exits before, or is not ready in time."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while not self._is_ready():
            assert time.monotonic() < deadline, f"not ready after {PROCESS_LIMIT_S} s:\n{self.output}"
            try:
                code = self.process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"ended with {code} before it was ready:\n{self.output}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait until the process has exited, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PROCESS_LIMIT_S)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.health_port), WAIT_LIMIT_S):  # less CPU than a request
                pass
            status, _ = self.page("/readyz")
        except OSError:
            return False
        return status == 200


@contextmanager
def running(
    command: Sequence[str | Path] = MQBROKER,
    directory: Path = Path(),
    settings: Mapping[str, object] | None = None,
    *,
    must_be_consistent: bool = True,
    is_awaited: bool = True,
    **popen: Any,
) -> Iterator[Daemon]:
    """Start `command` in `directory`, with free ports, small segments and `settings`; kill it on exit.

    Ports in `settings` are used as they are, for a daemon that restarts at the same address.

    A store in the usual place is verified on exit. With `is_awaited=False` the daemon may not be ready yet.
    """
    names = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")
    chosen = {name: settings[name] for name in names if settings and name in settings}
    ports: dict[str, Any] = dict(zip(names, free_ports(len(names)), strict=True)) | chosen
    small = {
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20 * 1024,
        "maxHashSlotNum": 1_000,
        "maxIndexNum": 4_000,
    }
    environment = variables(ports | small | dict(settings or {}))
    output = directory / "output.txt"
    with output.open("wb") as out:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=out, stderr=out, **popen)
    daemon = Daemon(process, output, ports)
    try:
        if is_awaited:
            daemon.wait_ready()
        yield daemon
    finally:
        process.kill()
        process.wait()
    if must_be_consistent and (directory / STORE / COMMIT_LOG_DIRECTORY).is_dir():
        assert_consistent(directory / STORE)


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Return this environment with `settings` as variables, and without other variables of the broker."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SKYLARK_")}
    inherited.pop("NAMESRV_ADDR", None)
    return inherited | {f"SKYLARK_{key}": str(value) for key, value in settings.items()}
