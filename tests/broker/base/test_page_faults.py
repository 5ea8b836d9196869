"""Faults in mapped files: zeros and a count, instead of the end of the process."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.broker.base import page_faults

SIZE = 16 * mmap.PAGESIZE
KEPT = 2 * mmap.PAGESIZE
needs_handler = pytest.mark.skipif(page_faults.Range is page_faults.Unwatched, reason="no compiled modules here")

UNWATCHED = """
import mmap, os, sys
from skylarkmq.broker.base import page_faults
page_faults.install()
with open(sys.argv[1], "r+b") as file:
    mapping = mmap.mmap(file.fileno(), 0)
    os.truncate(sys.argv[1], 0)
    mapping[5]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    page_faults.install()
    path = tmp_path / "file"
    path.write_bytes(b"x" * SIZE)
    return path


@needs_handler
def test_a_truncated_file_reads_as_zeros_and_is_counted(path: Path) -> None:
    """Page by page; each mapping records its lost bytes."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as mapping, mmap.mmap(file.fileno(), SIZE) as other:
        watched, beside, before = page_faults.Range(mapping), page_faults.Range(other), page_faults.count()
        os.truncate(path, KEPT)
        assert (mapping[:KEPT], watched.lost) == (b"x" * KEPT, (0, 0))
        watched.touch(SIZE - 1)
        assert (watched.lost, page_faults.count()) == ((SIZE - mmap.PAGESIZE, SIZE), before + 1)
        assert mapping[KEPT : KEPT + 9] == bytes(9)
        mapping[SIZE - 9 :] = b"y" * 9  # these bytes are not in the file
        assert watched.lost == (KEPT, SIZE)
        assert beside.lost == (0, 0)
        with pytest.raises(IndexError):
            watched.touch(SIZE)
        watched.forget()
        with pytest.raises(IndexError):
            watched.touch(0)
    assert path.read_bytes() == b"x" * KEPT


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer reports it by itself")
def test_an_unwatched_fault_ends_the_process_and_is_reported(path: Path) -> None:
    """By SIGBUS, as without a handler; stderr contains the stack of the thread."""
    ended = subprocess.run((sys.executable, "-c", UNWATCHED, str(path)), capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGBUS
    assert "Bus error" in ended.stderr
    assert 'File "<string>", line 8' in ended.stderr
