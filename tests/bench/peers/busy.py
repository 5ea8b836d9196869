"""Other work on the machine: processes that compute and sleep in turns, as followers do.

They share nothing with a broker, but its code takes more CPU time while they run: they evict its data from the caches,
and interrupt it.
"""

import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

WORK_BYTES: Final = 256 << 10
REST_S: Final = 5e-5


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run this many processes until the end of the block."""
    with ExitStack() as running:
        for _ in range(processes):
            process = running.enter_context(subprocess.Popen([sys.executable, "-m", __name__]))
            running.callback(process.kill)
        yield


def work() -> None:
    """Compute and sleep in turns, without an end."""
    data = bytes(WORK_BYTES)
    while True:
        zlib.crc32(data)
        time.sleep(REST_S)


if __name__ == "__main__":
    work()
