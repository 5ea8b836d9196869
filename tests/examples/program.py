"""A program of examples/ as a process: its output line by line, and signals at exact points of its work.

    with started("service.py", database, "--namesrv", namesrv) as program:
        program.wait_for("billing order=1")     reads the output up to this line
        program.stall()                         the next line that it writes blocks the thread that writes it
        program.stop(signal.SIGTERM)            exit code

stdout and stderr are one pipe. `stall` fills the pipe, so the program stops between the work before a line and the work
after it, until the test kills it.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.harness.limits import PROCESS_LIMIT_S

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
CHUNK_BYTES: Final = 4096


class Program:
    """A running program. It is the leader of its process group."""

    def __init__(self, name: str, arguments: tuple[str | Path, ...], environment: Mapping[str, str]) -> None:
        self._reader, writer = os.pipe()
        command = [sys.executable, EXAMPLES / name, *arguments]
        try:
            self._process = subprocess.Popen(
                command, stdout=writer, stderr=writer, env=os.environ | environment, start_new_session=True
            )
        finally:
            os.close(writer)
        self._rest = b""
        self._lines: list[str] = []

    def wait_for(self, text: str) -> str:
        """Return the next line that contains a text. Raises AssertionError if the program ends before."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while (line := self._line(deadline)) is not None:
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}:\n{self.output}")

    def stall(self) -> None:
        """Fill the pipe: the next line blocks the thread that writes it."""
        writer = os.open(f"/proc/self/fd/{self._reader}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            for size in (CHUNK_BYTES, 1):
                try:
                    while True:
                        os.write(writer, b"." * size)
                except BlockingIOError:
                    pass
        finally:
            os.close(writer)

    def wait(self) -> int:
        """Read the rest of the output, and return the exit code."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while self._line(deadline) is not None:
            pass
        return self._process.wait(PROCESS_LIMIT_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code once the process has ended."""
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """Kill all processes of the program, as `kill -9` does."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(PROCESS_LIMIT_S)

    def close(self) -> None:
        """Kill the program if it runs, and close the pipe."""
        self.kill()
        os.close(self._reader)

    @property
    def output(self) -> str:
        """Return all lines that were read."""
        return "\n".join(self._lines)

    def lines_with(self, text: str) -> list[str]:
        """Return the lines with a text, from the text on, among those that were read."""
        return [line[line.index(text) :] for line in self._lines if text in line]

    def _line(self, deadline: float) -> str | None:
        """Return the next line of the output; None at its end."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._reader], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"no output within {PROCESS_LIMIT_S} s after:\n{self.output}"
            part = os.read(self._reader, CHUNK_BYTES)
            if not part:
                return None
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        self._lines.append(line.decode(errors="replace"))
        return self._lines[-1]


@contextmanager
def started(name: str, *arguments: str | Path, **environment: str) -> Iterator[Program]:
    """Start a program of examples/, and kill it at the end."""
    program = Program(name, arguments, environment)
    try:
        yield program
    finally:
        program.close()


def run(name: str, *arguments: str | Path) -> tuple[int, str]:
    """Run a program to its end; return its exit code and its output."""
    with started(name, *arguments) as program:
        code = program.wait()
        return code, program.output
