"""One node of a replication link as a process that a supervisor keeps running, with a disk and a network to disturb.

The supervisor is that of deploy/systemd: it starts a process that failed again, but not after exit code 78, which needs
an operator. `obey` does what the line of such a process asks for.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.harness.daemon import MQBROKER, STORE, variables
from tests.harness.observed_disk import ObservedDisk
from tests.harness.one_way_proxy import OneWayProxy
from tests.harness.small_disk import SmallDisk

NEEDS_OPERATOR: Final = 78
EMPTY_DIRECTORY: Final = "empty directory"
"""In the line of a node that has to become a new copy."""


class SupervisedNode:
    """`proxy` is between a follower and its leader; None for the leader. `restart_s`: pause before a new start."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        disk: ObservedDisk,
        small_disk: SmallDisk | None,
        proxy: OneWayProxy | None,
        restart_s: float,
    ) -> None:
        self.name = directory.name
        self.disk = disk
        self.small_disk = small_disk
        self.exits: list[int] = []
        """Codes of the processes that ended by themselves; negative: killed by this signal."""
        self.asked = ""
        """The last line that asked for an operator."""
        self.is_back = True
        """Whether its log has caught up with the leader's after the last fault."""
        self._proxy = proxy
        self._directory = directory
        self._environment = variables(settings) | {"PYTHONPATH": os.path.abspath("src")}
        self._output = directory / "output.txt"
        self._restart_s = restart_s
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._stopping = asyncio.Event()
        self._process: Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SupervisedNode {self.name} exits={self.exits}>"

    @property
    def store(self) -> Path:
        """Return the directory of its store."""
        return self._directory / STORE

    @property
    def proxy(self) -> OneWayProxy:
        """Return the proxy of a follower."""
        assert self._proxy is not None, "the leader has no proxy"
        return self._proxy

    @property
    def last_line(self) -> str:
        """Return the last line of its output."""
        return self.output.rstrip().rpartition("\n")[2]

    @property
    def output(self) -> str:
        """Return the output of all its processes so far."""
        return self._output.read_text(errors="replace")

    @property
    def needs_operator(self) -> bool:
        """Whether it ended, and must not be started again as it is."""
        return self._supervisor is not None and self._supervisor.done() and not self._stopping.is_set()

    async def start(self) -> None:
        """Start the process, and keep it running."""
        if self._proxy is not None and not self._proxy.is_listening:
            await self._proxy.start()
        await self._spawn()
        self._supervisor = asyncio.create_task(self._supervise())

    async def stop(self) -> int:
        """Stop the process in order. Return its exit code."""
        self._stopping.set()
        self._may_run.set()
        self._signal(signal.SIGTERM)
        assert self._process is not None
        code = await self._process.wait()
        await self._end()
        return code

    async def close(self) -> None:
        """Kill the process, whatever its state, and remove its disk."""
        self._stopping.set()
        self._signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()
        await self._end()
        if self._proxy is not None:
            await self._proxy.stop()
        if self.small_disk is not None:
            self.small_disk.unmount()

    def kill(self) -> None:
        """End the process with SIGKILL. The supervisor starts it again."""
        self._signal(signal.SIGKILL)

    def hold_down(self) -> None:
        """Start no new process until `let_run`."""
        self._may_run.clear()

    def let_run(self) -> None:
        """Let the supervisor start a new process."""
        self._may_run.set()

    def pause(self) -> None:
        """Pause the process by SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self._signal(signal.SIGCONT)

    async def obey(self) -> None:
        """Do what an operator has to do after exit code 78, and start it again."""
        self.asked = self.last_line
        if EMPTY_DIRECTORY in self.asked:
            for path in self.store.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        await self.start()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _spawn(self) -> None:
        with self._output.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *self.disk.command(MQBROKER), cwd=self._directory, env=self._environment, stdout=out, stderr=out
            )

    async def _supervise(self) -> None:
        while True:
            assert self._process is not None
            code = await self._process.wait()
            if self._stopping.is_set():
                return
            self.exits.append(code)
            if code == NEEDS_OPERATOR:
                return
            await asyncio.sleep(self._restart_s)
            await self._may_run.wait()
            if self._stopping.is_set():
                return
            await self._spawn()

    async def _end(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
