"""Broker processes of one group, each with a directory of its own. They are killed and started again."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.harness.daemon import Daemon, running
from tests.harness.limits import PROCESS_LIMIT_S

POLL_S: Final = 0.05


def wait(condition: Callable[[], object], daemon: Daemon | None = None) -> None:
    """Wait until a condition holds. Raises AssertionError after PROCESS_LIMIT_S."""
    deadline = time.monotonic() + PROCESS_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "" if daemon is None else daemon.output
        time.sleep(POLL_S)


class GroupDaemons:
    """`settings` are those of all nodes. The context kills the processes that run at its end."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        self.directory = directory
        self.settings = dict(settings)
        self.daemons: dict[str, Daemon] = {}
        self._stacks: dict[str, ExitStack] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self._stacks):
            self.kill(name)

    def run(self, name: str, settings: Mapping[str, object], *, is_awaited: bool = True) -> Daemon:
        """Start a node with these settings besides those of all nodes."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        stack = self._stacks[name] = ExitStack()
        started = running(directory=directory, settings=self.settings | dict(settings), is_awaited=is_awaited)
        self.daemons[name] = stack.enter_context(started)
        return self.daemons[name]

    def kill(self, name: str) -> None:
        """End a process with SIGKILL, and check its store."""
        self._stacks.pop(name).close()

    def log(self, name: str) -> bytes:
        """Return the bytes of a node's log: its segments, without the zeros at the end."""
        files = sorted((self.directory / name / "store" / "commitlog").glob("0*"))
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")
