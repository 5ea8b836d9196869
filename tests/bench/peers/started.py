"""One broker of each kind, started like its users start it, on a store below one directory.

    interpreted     ours, SKYLARK_COMPILED=0
    compiled        ours, with its compiled modules
    apache-4.9.7    RocketMQ's own, heap 1 GB
    apache-5.3.3

All brokers use the loopback address, their default settings, and the same flush mode. CPU is user and system time of
the broker's process with all its threads, from /proc. Brokers that are not being measured are stopped (SIGSTOP): timers
of an idle broker take time from the measured one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from skylarkmq.clients.mqbench.clusters import Broker
from tests.interop.brokers import (
    APACHE_VERSIONS,
    CommandMaker,
    Commands,
    apache_commands,
    routes,
    running_broker,
    skylark_commands,
    wait_until,
)

CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
HEAP: Final = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
INTERPRETED, COMPILED = "interpreted", "compiled"
OURS: Final = (INTERPRETED, COMPILED)
OFFICIAL: Final = "apache-4.9.7"
NEWER: Final = "apache-5.3.3"
ASYNC, SYNC = "ASYNC_FLUSH", "SYNC_FLUSH"
SEGMENT_BYTES: Final = 1 << 30  # the default of both sides


class Started:
    """A running broker."""

    def __init__(self, kind: str, address: str, namesrv: str, process: subprocess.Popen[bytes]) -> None:
        self.kind = kind
        self.broker = Broker("broker-a", address)
        self.namesrv = namesrv
        self._process = process

    def __repr__(self) -> str:
        return f"<Started {self.kind} at {self.broker.address}>"

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Stop the process until the end of the block."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def wait_routed(self) -> None:
        """Wait until the name server has the broker's route: it drops a broker that was stopped for two minutes."""
        port = int(self.namesrv.rpartition(":")[2])
        wait_until(lambda: routes(port, "TBW102", None), f"route to {self.kind}")

    def cpu_s(self) -> float:
        """Return user and system time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


@contextmanager
def started(
    kind: str, directory: Path, flush: str = ASYNC, settings: Mapping[str, object] | None = None
) -> Iterator[Started]:
    """Start a broker whose store is below `directory`; stop it at the end."""
    home = directory / kind
    home.mkdir(parents=True)
    standard = {"flushDiskType": flush, "mappedFileSizeCommitLog": SEGMENT_BYTES}
    with running_broker(MAKERS[kind], home, standard | dict(settings or {})) as running:
        address = running.broker_address
        yield Started(kind, address, running.namesrv, running.process)


def ours(
    environment: Mapping[str, str], home: Path, namesrv_port: int, broker_port: int, settings: Mapping[str, object]
) -> Commands:
    """Return our broker's command, with additional environment variables."""
    commands = skylark_commands(home, namesrv_port, broker_port, settings)
    return [(command, given | dict(environment)) for command, given in commands]


def variant(environment: Mapping[str, str]) -> str:
    """Return the version text of our broker."""
    command = [sys.executable, "-m", "skylarkmq.broker", "--version"]
    return subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True).stdout


def is_compiled() -> bool:
    """Return whether this installation has compiled modules."""
    return "interpreted" not in variant(AS_COMPILED)


def available(kinds: Sequence[str]) -> list[str]:
    """Return the kinds that can be started here; print the reason for the others."""
    if COMPILED in kinds and not is_compiled():
        print(f"{COMPILED}: omitted, its modules are not built here ({variant(AS_COMPILED).strip()})", file=sys.stderr)
        return [kind for kind in kinds if kind != COMPILED]
    return list(kinds)


AS_INTERPRETED: Final = {"SKYLARK_COMPILED": "0"}
AS_COMPILED: Final = {"SKYLARK_COMPILED": "1"}

MAKERS: Final[dict[str, CommandMaker]] = {
    INTERPRETED: partial(ours, AS_INTERPRETED),
    COMPILED: partial(ours, AS_COMPILED),
    **{f"apache-{version}": partial(apache_commands, version, jvm=HEAP) for version in APACHE_VERSIONS},
}


def add_build(kind: str, checkout: Path, like: str) -> None:
    """Add another checkout, installed in its `.venv`, as a kind with the variant `like`."""
    environment = AS_INTERPRETED if like == INTERPRETED else AS_COMPILED
    program = str(checkout / ".venv" / "bin" / "mqbroker")

    def commands(home: Path, namesrv_port: int, broker_port: int, settings: Mapping[str, object]) -> Commands:
        [(command, given)] = ours(environment, home, namesrv_port, broker_port, settings)
        return [([program, *command[command.index("skylarkmq.broker") + 1 :]], given)]

    MAKERS[kind] = commands
