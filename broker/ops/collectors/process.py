"""The process as Linux sees it, under the names that Prometheus's client libraries use.

Descriptors are counted entry by entry where the kernel does not tell their number (Linux before 6.2): there are as many
as connections, and one look at all of them would hold the loop for longer than a scrape may.
"""

import os
import re
import resource
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from skylarkmq.broker.ops.steps import Step, Steps, Value

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_ANONYMOUS: Final = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
_AT_ONCE: Final = 256


def told_entries(directory: Path) -> int:
    """The number of descriptors, as the kernel tells it in place of a size; 0 if it does not."""
    return directory.stat().st_size


class ProcessCollector:
    """Metrics of this process. `proc` is where the kernel tells of it."""

    def __init__(self, proc: Path = Path("/proc/self"), entries: Callable[[Path], int] = told_entries) -> None:
        self._proc = proc
        self._entries = entries
        up_s = float((proc.parent / "uptime").read_text().split()[0])
        self._started_s = time.time() - up_s + int(self._stat()[19]) / _TICKS

    def __repr__(self) -> str:
        return f"<ProcessCollector {self._proc}>"

    def __call__(self) -> Steps:
        """Every value."""
        stat = self._stat()
        yield Value("process_cpu_seconds_total", (), (int(stat[11]) + int(stat[12])) / _TICKS)
        yield Value("process_start_time_seconds", (), self._started_s)
        yield Value("process_virtual_memory_bytes", (), int(stat[20]))
        yield Value("process_resident_memory_bytes", (), int(stat[21]) * _PAGE_BYTES)
        found = _ANONYMOUS.search((self._proc / "status").read_text())
        if found is not None:
            yield Value("skylark_memory_anonymous_bytes", (), int(found[1]) * 1024)
        yield Value("process_max_fds", (), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        count = yield from self._open_descriptors()
        yield Value("process_open_fds", (), count)

    def _stat(self) -> list[str]:
        """The fields of `stat` behind the command's name, from the process's state on."""
        return (self._proc / "stat").read_text().rpartition(")")[2].split()

    def _open_descriptors(self) -> Generator[Step, None, int]:
        directory = self._proc / "fd"
        count = self._entries(directory)
        if count:
            return count
        with os.scandir(directory) as entries:
            for count, _ in enumerate(entries, start=1):
                if count % _AT_ONCE == 0:
                    yield None
        return count
