"""Memory in use is collapsed into huge pages, and no other memory is."""

import ctypes
import mmap
import time
from pathlib import Path

import pytest

from skylarkmq.broker.app.host import huge_pages
from skylarkmq.broker.app.host.huge_pages import HugePages, anonymous_bytes, anonymous_ranges, huge_page_bytes
from tests.harness.limits import WAIT_LIMIT_S

MIB = 1 << 20

needs_huge_pages = pytest.mark.skipif(not huge_page_bytes(), reason="this kernel has no huge pages, or they are off")


def in_huge_pages(memory: mmap.mmap) -> int:
    """Return how many bytes of a mapping are in huge pages, according to the kernel."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    is_here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in (first := line.split(maxsplit=1)[0]):
            begin, _, end = first.partition("-")
            is_here = int(begin, 16) <= address < int(end, 16)
        elif is_here and first == "AnonHugePages:":
            return int(line.split()[1]) * 1024
    raise AssertionError("the mapping is missing")


def refused_bytes(memory: mmap.mmap) -> int:
    """Return how many bytes of a mapping the kernel refuses to collapse for this test, too."""
    address, size = ctypes.addressof(ctypes.c_char.from_buffer(memory)), huge_page_bytes()
    extents = range(-(-address // size) * size, address + len(memory) - size + 1, size)
    return sum(size for at in extents if huge_pages._libc.madvise(at, size, huge_pages._MADV_COLLAPSE))


def can_collapse() -> bool:
    """Return whether the kernel has MADV_COLLAPSE, which can fail if memory is fragmented."""
    with mmap.mmap(-1, 8 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = b"x" * (8 * MIB)
        HugePages(huge_page_bytes(), pause_s=0).gather()
        return in_huge_pages(memory) > 0


@needs_huge_pages
def test_memory_in_use_is_collapsed_with_its_content() -> None:
    """All of a full mapping, except its ends. The kernel may refuse a page for now, so later passes try it again; what
    is left it refuses to this test, too."""
    if not can_collapse():
        pytest.skip("this kernel does not collapse memory")
    with mmap.mmap(-1, 16 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        text = bytes(range(256)) * (16 * MIB // 256)
        memory[:] = text
        pages = HugePages(huge_page_bytes(), pause_s=0)
        for _ in range(100):
            pages.gather()
            if in_huge_pages(memory) >= 14 * MIB:
                break
            time.sleep(0.01)
        collapsed = in_huge_pages(memory)
        assert collapsed + refused_bytes(memory) >= 14 * MIB
        assert memory[:] == text
        assert pages.gather() >= collapsed  # a further pass changes nothing


@needs_huge_pages
def test_untouched_memory_is_not_collapsed() -> None:
    """Such as thread stacks, and sparsely used memory."""
    with mmap.mmap(-1, 64 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[: 32 * MIB : 8192] = b"x" * (32 * MIB // 8192)  # every second page
        pages = HugePages(huge_page_bytes(), pause_s=0)
        pages.gather()
        before = anonymous_bytes()
        pages.gather()
        assert in_huge_pages(memory) == 0
        assert anonymous_bytes() - before < 8 * MIB


def test_the_thread_collapses_memory_after_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the initial memory, and again after growth."""
    in_use = 100 * MIB
    passes: list[int] = []

    def gather(_: HugePages) -> int:
        passes.append(in_use)
        return 0

    monkeypatch.setattr(huge_pages, "anonymous_bytes", lambda: in_use)
    monkeypatch.setattr(HugePages, "gather", gather)
    pages = HugePages(2 * MIB, interval_s=0.001)
    pages.start()
    try:
        wait_for(passes, 100 * MIB)
        in_use = 108 * MIB - 1
        time.sleep(0.05)
        in_use = 108 * MIB
        wait_for(passes, 108 * MIB)
    finally:
        pages.stop()
    assert passes == [100 * MIB, 108 * MIB]


def wait_for(passes: list[int], in_use: int) -> None:
    """Wait up to ten seconds for a pass with this memory in use."""
    until_s = time.monotonic() + WAIT_LIMIT_S
    while in_use not in passes:
        assert time.monotonic() < until_s
        time.sleep(0.001)


def test_huge_pages_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operator, or because the kernel has none."""
    enabled = tmp_path / "enabled"
    monkeypatch.setattr(huge_pages, "_ENABLED", enabled)
    assert huge_page_bytes() == 0
    enabled.write_text("always madvise [never]\n")
    assert huge_page_bytes() == 0
    enabled.write_text("always [madvise] never\n")
    monkeypatch.setattr(huge_pages, "_SIZE", tmp_path / "size")
    (tmp_path / "size").write_text("2097152\n")
    assert huge_page_bytes() == 2 * MIB


def test_ranges_are_of_this_process() -> None:
    """They include anonymous mappings, and no mapped file."""
    with mmap.mmap(-1, 4 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert any(begin <= address < end for begin, end in anonymous_ranges())
    with Path(__file__).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert not any(begin <= address < end for begin, end in anonymous_ranges())
