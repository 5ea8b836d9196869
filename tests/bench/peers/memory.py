"""A machine that has been up for a while: its free memory is page cache.

A virtual machine gives memory that is free for some seconds back to its host, and whoever writes to such a page next
pays for getting it again: 10 to 15 µs a page where we measured, several times what a broker needs for the three
messages in it. After hours of work nothing is free: new pages of a log are old pages of the cache. So the cache is
filled, before the brokers of a flush mode are measured, by reading a file that is one hole: it takes no disk, and its
pages go first when somebody needs them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

MIB: Final = 1 << 20
CHUNK_BYTES: Final = MIB >> 3  # what one piece of advice reads at most
LEFT_FREE: Final = 0.03  # of the memory; the kernel keeps about as much free by itself


@contextmanager
def used_memory(directory: Path) -> Iterator[None]:
    """Fill the page cache: a minute for 24 GiB, if all of it was free. What fills it is dropped on the way out."""
    with TemporaryFile(dir=directory) as file:
        total, _ = memory()
        file.truncate(total)
        for at in range(0, total, CHUNK_BYTES):
            if at % (64 * MIB) == 0 and memory()[1] < total * LEFT_FREE:
                break
            os.posix_fadvise(file.fileno(), at, CHUNK_BYTES, os.POSIX_FADV_WILLNEED)
        yield


def memory() -> tuple[int, int]:
    """Bytes in all, and bytes that nobody uses."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {words[0]: int(words[1]) << 10 for words in lines}
    return sizes["MemTotal:"], sizes["MemFree:"]
