"""Metrics of the process from Linux, under the names that Prometheus's client libraries use.

Where the kernel does not report the number of descriptors (Linux before 6.2), they are counted entry by entry, in
steps: there are as many as connections, and counting them at once would block the loop for longer than a scrape may.
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
_ENTRIES_PER_STEP: Final = 256


def reported_entries(directory: Path) -> int:
    """Return the number of descriptors, which the kernel reports as the directory's size; 0 if it does not."""
    return directory.stat().st_size


class ProcessCollector:
    """Metrics of this process. `proc`: the process's directory in /proc."""

    def __init__(self, proc: Path = Path("/proc/self"), entries: Callable[[Path], int] = reported_entries) -> None:
        self._proc = proc
        self._entries = entries
        up_s = float((proc.parent / "uptime").read_text().split()[0])
        self._started_s = time.time() - up_s + int(self._stat()[19]) / _TICKS

    def __repr__(self) -> str:
        return f"<ProcessCollector {self._proc}>"

    def __call__(self) -> Steps:
        """Yield every value."""
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
        """Return the fields of `stat` after the command's name, starting with the process's state."""
        return (self._proc / "stat").read_text().rpartition(")")[2].split()

    def _open_descriptors(self) -> Generator[Step, None, int]:
        directory = self._proc / "fd"
        count = self._entries(directory)
        if count:
            return count
        with os.scandir(directory) as entries:
            for count, _ in enumerate(entries, start=1):
                if count % _ENTRIES_PER_STEP == 0:
                    yield None
        return count
