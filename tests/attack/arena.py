"""A daemon under attack: a process in a watched directory, which is killed, stopped and started again.

    with Arena(directory, flushDiskType="SYNC_FLUSH") as arena:
        arena.client()                  a raw client of the broker
        arena.kill(), arena.start()     kill -9; start again and wait until it is ready
        arena.finish()                  SIGTERM; AssertionError for every violation

The directory, from outside to inside. Everything except the store and the output is watched: names, types, sizes,
modification times and contents must not change.

    watched/
        victim/2024/backup.tar          a directory with numeric names, as those of queues
        victim/0/000...000              a file with the name of a segment
        link -> victim                  a symbolic link to a directory
        home/                           the daemon's working directory
            victim/...                  the same again
            config.json                 a file with the name of a state file
            store/                      the store; below consumequeue only <topic>/<queue id>/<segment>
            output.txt                  stdout and stderr of all processes

`prefix` and `environment` are added to the daemon's command and to its environment (sanitizers, other builds).
`account` signs the requests of clients that have no account of their own.
"""

import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from skylarkmq.broker.store.fsck import Finding, Severity
from tests.harness.daemon import MQBROKER, STORE, Daemon, variables
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import Credentials, RawClient
from tests.harness.store_check import findings_of

NAMES: Final = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")
SEGMENT: Final = "0" * 20
CANARIES: Final = ("2024/backup.tar", f"0/{SEGMENT}", f"1/{SEGMENT}", "notes.txt")
RSS_LIMIT_BYTES: Final = 512 << 20
"""Anonymous memory; the mapped log does not count. An idle daemon has 60 MB, one in `bench_overload` below 300 MB."""

SANITIZED_RSS_LIMIT_BYTES: Final = 2 << 30
"""AddressSanitizer uses shadow memory, and delays the reuse of freed memory: an idle daemon has 600 MB."""
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
USER_TICKS, SYSTEM_TICKS = 11, 12
"""Fields of /proc/PID/stat after the name."""
SMALL: Final[Mapping[str, object]] = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 1 << 22,
    "mappedFileSizeConsumeQueue": 20 * 1024,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "fileReservedTime": 720,
}
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):.*?^\S+.*?$", re.MULTILINE | re.DOTALL)
_SANITIZER: Final = re.compile(r"AddressSanitizer|runtime error:|Fatal Python error|MemoryError")
_QUEUE_FILE: Final = re.compile(r"[%|a-zA-Z0-9_-]+/\d{1,10}/\d{20}")

Snapshot = dict[str, tuple[object, ...]]


class Arena:
    """One store and the daemons that serve it, one after another."""

    def __init__(
        self,
        directory: Path,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        account: Credentials | None = None,
        **settings: object,
    ) -> None:
        self._account = account
        self.watched = directory / "watched"
        self.home = self.watched / "home"
        self.store = self.home / STORE
        self.output = self.home / "output.txt"
        self.max_rss_bytes = 0
        self.starts_s: list[float] = []
        self.daemon: Daemon
        self._command = (*prefix, *MQBROKER)
        self._ports: dict[str, Any] = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        chosen = variables(self._ports | dict(SMALL) | settings)
        self._environment = chosen | {"PYTHONPATH": os.path.abspath("src")} | dict(environment or {})
        self._rss_limit_bytes = SANITIZED_RSS_LIMIT_BYTES if "LD_PRELOAD" in self._environment else RSS_LIMIT_BYTES
        self._clients: list[RawClient] = []
        self._lay_canaries()
        self._before = self.snapshot()

    def __repr__(self) -> str:
        return f"<Arena {self.home}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()
        self.daemon.process.kill()
        self.daemon.process.wait()

    # -------------------------------------------------------------------------------------------------------- processes

    def start(self) -> None:
        """Start the daemon and wait until it is ready. Raises AssertionError if it ends or takes too long."""
        begun_s = time.monotonic()
        with self.output.open("ab") as out:
            process = subprocess.Popen(self._command, env=self._environment, cwd=self.home, stdout=out, stderr=out)
        self.daemon = Daemon(process, self.output, self._ports)
        self.daemon.wait_ready()
        self.starts_s.append(time.monotonic() - begun_s)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._disconnect()
        self.daemon.process.kill()
        self.daemon.process.wait()

    def stop(self) -> int:
        """End the process with SIGTERM; return its exit code. Raises TimeoutExpired after PROCESS_LIMIT_S."""
        self._disconnect()
        self.daemon.process.send_signal(signal.SIGTERM)
        return self.daemon.process.wait(PROCESS_LIMIT_S)

    def restart(self) -> None:
        """End the process with SIGKILL, and start another one."""
        self.kill()
        self.start()

    @property
    def broker_port(self) -> int:
        return self.daemon.broker_port

    def client(
        self, timeout_s: float = WAIT_LIMIT_S, source: str | None = None, account: Credentials | None = None
    ) -> RawClient:
        """Return a connection to the broker, which is closed with the daemon."""
        return self._connect(self.daemon.broker_port, timeout_s, source, account)

    def namesrv_client(
        self, timeout_s: float = WAIT_LIMIT_S, source: str | None = None, account: Credentials | None = None
    ) -> RawClient:
        """Return a connection to the name server, which is closed with the daemon."""
        return self._connect(self.daemon.namesrv_port, timeout_s, source, account)

    # --------------------------------------------------------------------------------------------------------- watching

    def cpu_s(self) -> float:
        """Return the CPU time of the daemon, in seconds."""
        fields = Path(f"/proc/{self.daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) / TICKS_PER_S

    def rss_bytes(self) -> int:
        """Return the anonymous memory of the daemon; `max_rss_bytes` keeps the maximum."""
        try:
            status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return 0
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        rss = int(found[1]) * 1024 if found else 0
        self.max_rss_bytes = max(self.max_rss_bytes, rss)
        return rss

    def snapshot(self) -> Snapshot:
        """Return type, size, time and content of everything that the daemon must not change."""
        return {str(path.relative_to(self.watched)): _state(path) for path in self._outside()}

    def findings(self) -> list[str]:
        """Return the violations in files, log and memory; call it when the daemon does not run."""
        return [*self._touched(), *self._misplaced(), *self._logged(), *self._too_large()]

    def store_findings(self) -> list[Finding]:
        """Return the findings of `store verify`."""
        return findings_of(self.store)

    def finish(self) -> None:
        """Stop the daemon with SIGTERM. Raises AssertionError with every violation."""
        self.rss_bytes()
        code = self.stop()
        damage = [finding for finding in self.store_findings() if finding.severity is Severity.DAMAGE]
        found = [*self.findings(), *(f"{finding.file}:{finding.offset}: {finding.what}" for finding in damage)]
        if code:
            found.append(f"exit code {code} after SIGTERM")
        assert not found, "\n".join(found)

    # ---------------------------------------------------------------------------------------------------------- details

    def _connect(self, port: int, timeout_s: float, source: str | None, account: Credentials | None) -> RawClient:
        client = RawClient(LOOPBACK, port, timeout_s, source=source, credentials=account or self._account)
        self._clients.append(client)
        return client

    def _disconnect(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()

    def _lay_canaries(self) -> None:
        self.home.mkdir(parents=True)
        for victim in (self.watched / "victim", self.home / "victim"):
            for name in CANARIES:
                (victim / name).parent.mkdir(parents=True, exist_ok=True)
                (victim / name).write_bytes(name.encode() * 100)
        (self.home / "config.json").write_text("{}")
        (self.watched / "link").symlink_to("victim")

    def _outside(self) -> Iterator[Path]:
        for directory, names, files in os.walk(self.watched):
            here = Path(directory)
            if here == self.home:
                names[:] = [name for name in names if name != STORE]
                files[:] = [name for name in files if name != self.output.name]
            else:
                yield here
            yield from (here / name for name in files)
            yield from (here / name for name in names if (here / name).is_symlink())

    def _touched(self) -> Iterator[str]:
        now = self.snapshot()
        for name in sorted(self._before.keys() | now.keys()):
            if self._before.get(name) != now.get(name):
                yield f"outside the store: {name} was {self._before.get(name)}, is {now.get(name)}"

    def _misplaced(self) -> Iterator[str]:
        queues = self.store / "consumequeue"
        for path in queues.rglob("*"):
            name = str(path.relative_to(queues))
            if path.is_file() and not _QUEUE_FILE.fullmatch(name):
                yield f"in the store: {name!r} is not the path of a queue's segment"

    def _logged(self) -> Iterator[str]:
        text = self.output.read_text(errors="replace")
        for found in dict.fromkeys(trace[0].strip() for trace in _TRACEBACK.finditer(text)):
            yield f"logged: {found}"
        yield from (f"logged: {line[:300]}" for line in text.splitlines() if _SANITIZER.search(line))

    def _too_large(self) -> Iterator[str]:
        if self.max_rss_bytes > self._rss_limit_bytes:
            yield f"memory: {self.max_rss_bytes >> 20} MiB, limit {self._rss_limit_bytes >> 20}"


def _state(path: Path) -> tuple[object, ...]:
    if path.is_symlink():
        return "link", os.readlink(path)
    status = path.stat()
    if path.is_dir():
        return "directory", status.st_mtime_ns
    return "file", status.st_size, status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()
