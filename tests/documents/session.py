"""The shell commands of a page, run as a reader runs them: in one directory, one after the other, with our commands.

The usual ports of the documents are replaced by free ones, in commands, files and outputs. Daemons are ready before the
next command runs, and end with the session.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Final, Self

from tests.documents.examples import KEEPS_RUNNING, ROOT, Example, matches
from tests.harness.daemon import variables
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports

PORTS: Final = ("9876", "10911", "5557", "8000", "8001")
SMALL: Final = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 1_000, "maxIndexNum": 4_000}
POLL_S: Final = 0.05


class Session:
    """A directory and an environment for the commands of one page."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "work"
        self._directory.mkdir()
        self._ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        keys = ("embeddedNamesrvPort", "listenPort", "metricsPromExporterPort")
        settings = SMALL | dict(zip(keys, self._ports.values(), strict=False))
        commands = directory / "bin"
        write_commands(commands)
        path = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = variables(settings) | {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._log = directory / "daemons.txt"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()

    def do(self, example: Example) -> None:
        """Write a file, start a daemon, or run commands. Raises AssertionError if they fail or print another output."""
        code = self._with_ports(example.code)
        if example.title:
            (self._directory / example.title).write_text(code)
        elif example.mark == KEEPS_RUNNING:
            self._start(example, code)
        else:
            self._run(example, code)

    def _run(self, example: Example, code: str) -> None:
        command = ["bash", "-e", "-o", "pipefail", "-c", code]
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PROCESS_LIMIT_S,
            check=False,
        )
        report = f"{example.name}\n{done.stdout}\n{done.stderr}\n{self._logged()}"
        assert done.returncode == 0, report
        if example.output is not None:
            assert matches(self._with_ports(example.output), done.stdout), report

    def _start(self, example: Example, code: str) -> None:
        with self._log.open("ab") as log:
            command = ["bash", "-e", "-c", code]
            daemon = subprocess.Popen(
                command, cwd=self._directory, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        self._daemons.append(daemon)
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while not self._is_ready(code):
            assert daemon.poll() is None, f"{example.name} has ended\n{self._logged()}"
            assert time.monotonic() < deadline, f"{example.name} is not ready\n{self._logged()}"
            time.sleep(POLL_S)

    def _is_ready(self, code: str) -> bool:
        """Return whether the broker is ready, or another daemon accepts connections at the port in its command."""
        try:
            if code.startswith("mqbroker"):
                with urllib.request.urlopen(f"http://{LOOPBACK}:{self._ports['5557']}/readyz", timeout=PROCESS_LIMIT_S):
                    return True
            (port,) = (port for port in self._ports.values() if port in code)
            with socket.create_connection((LOOPBACK, int(port)), PROCESS_LIMIT_S):
                return True
        except OSError:
            return False

    def _with_ports(self, text: str) -> str:
        return re.sub(rf"\b(?:{'|'.join(PORTS)})\b", lambda found: self._ports[found[0]], text)

    def _logged(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


def write_commands(directory: Path) -> None:
    """Write one executable for `python` and for each command of the project."""
    directory.mkdir()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    programs = {"python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'}
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        programs[name] = f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n"
    for name, text in programs.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
