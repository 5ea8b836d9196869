"""Fuzzers of the modules for the load generator, for syncs of the flusher, and for faults in mapped files."""

import os
import tempfile
import threading
from mmap import PAGESIZE, mmap
from random import Random
from typing import Any, Final

import numpy as np

from skylarkmq.broker.base import page_faults
from skylarkmq.clients.mqbench.in_flight import PythonField, PythonInFlight
from skylarkmq.clients.mqbench.response_counter import SHORT, opaques_by_numpy
from skylarkmq.protocol import compiled
from tests.fuzz.cases.memory import damaged, number
from tests.protocol.compiled.test_same_in_flight import outcome, response

_in_flight: Final[Any] = compiled.load("in_flight")
_syncs: Final[Any] = compiled.load("syncs")


def in_flight(rng: Random) -> None:
    """Fields are patched, frames sent and matched, responses read, with positions and numbers of every size."""
    fields(rng)
    frames, step = rng.randint(1, 70), rng.randint(70, 200)
    ours, python_version = _in_flight.InFlight(frames, step), PythonInFlight(frames, step)
    for now_ns in range(0, 9_000, 1_000):
        first = rng.randint(-1, frames)
        end = rng.randint(max(first, 0), frames + (rng.random() < 0.1))
        opaque = rng.randrange(50) * step
        free = outcome(lambda: ours.free_end(first, end))  # noqa: B023 (called at once)
        assert free == outcome(lambda: python_version.free_end(first, end))  # noqa: B023
        if isinstance(free, int) and free > first >= 0:
            ours.mark_sent(first, free, opaque, now_ns)
            python_version.mark_sent(first, free, opaque, now_ns)
        arrived = np.array([rng.choice((opaque, 0)) + rng.randrange(-3, 300) for _ in range(9)], np.int64)
        arrived = arrived[arrived >= 0]
        assert ours.match(arrived, now_ns).tolist() == python_version.match(arrived, now_ns).tolist()
    strays = np.array([number(rng) for _ in range(5)], np.int64)
    ours.match(strays, 1)
    opaques(rng)


def fields(rng: Random) -> None:
    ours, theirs = bytearray(200), bytearray(200)
    width = rng.randint(0, 20)
    places = np.array([rng.randrange(0, 205 - width) if rng.random() < 0.2 else n * 20 for n in range(9)])
    field, python_version = (
        outcome(lambda: _in_flight.Field(ours, places, width)),
        outcome(lambda: PythonField(theirs, places, width)),
    )
    if not isinstance(python_version, PythonField):
        assert isinstance(field, tuple)
        return
    for _ in range(4):
        first = rng.randint(-1, 9)
        end = rng.randint(first, 10)
        text = rng.randbytes(width + (rng.random() < 0.05))
        found = outcome(lambda: field.fill(first, end, text))  # type: ignore[attr-defined]  # noqa: B023 (called at once)
        assert found == outcome(lambda: python_version.fill(first, end, text))  # noqa: B023
    assert ours == theirs


def opaques(rng: Random) -> None:
    rows = [response(rng) for _ in range(SHORT // 128 + 9)]
    behind = len(rows[0]) - rows[0].index(b'"opaque":') - 19
    whole = b"".join(rows)[len(rows[0]) - behind :]
    if rng.random() < 0.5:
        _in_flight.opaques_in_common_layout(damaged(rng, whole), behind)
        _in_flight.opaques_in_common_layout(rng.randbytes(rng.randrange(200)), rng.randrange(100))
        return
    stream = whole[: rng.randint(SHORT, len(whole))]
    found, expected = _in_flight.opaques_in_common_layout(stream, behind), opaques_by_numpy(stream, behind)
    if found is not None and expected is None:  # a refusal whose end has not arrived: it is found later
        assert stream.count(b'"code":0,', 0, found[1]) == len(found[0])
        return
    if found is None or expected is None:
        assert found is expected
        return
    assert (found[0].tolist(), found[1]) == (expected[0].tolist(), expected[1])


def syncs(rng: Random) -> None:
    """A thread syncs what is submitted to one file and then to another; in the end all is done, once and in order."""
    wake, event = os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK)
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        it = _syncs.Syncs(wake, event, 0)
        files, end, seen = [one.fileno(), other.fileno()], 0, 0
        for fd in rng.choices(files, k=rng.randint(1, 4)):
            it.set_file(fd)
            thread = threading.Thread(target=it.run)
            thread.start()
            for _ in range(rng.randrange(5)):
                end += rng.randint(1, 1 << 40)
                it.submit(end, end + 1, fd)
                if rng.random() < 0.3:
                    it.keep_spinning(rng.choice((0, 50, 500)))
                done = it.done()[0]
                assert seen <= done <= end
                seen = done
            it.interrupt()
            thread.join()
        it.mark_synced(end, end + 1)
        assert it.done()[:2] == (end, end + 1)
        assert os.eventfd_read(event) == it.done()[2]
    os.close(wake)
    os.close(event)


def faults(rng: Random) -> None:
    """A mapped file is cut, extended, read and written anywhere: only used pages beyond the cut are lost."""
    page_faults.install()
    pages = rng.randint(1, 40)
    size = pages * PAGESIZE - rng.choice((0, 1, PAGESIZE - 1))
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        with mmap(file.fileno(), size) as mapping:
            watched, first, behind = page_faults.Range(mapping), pages, 0
            for _ in range(rng.randint(1, 9)):
                kept = rng.randrange(pages + 1)
                os.truncate(file.fileno(), min(kept * PAGESIZE, size))
                at = rng.randrange(size)
                if rng.random() < 0.3:
                    mapping[at] = 1
                else:
                    watched.touch(at)
                if at >= kept * PAGESIZE:
                    first, behind = min(first, at // PAGESIZE), max(behind, at // PAGESIZE + 1)
                os.truncate(file.fileno(), size)
                assert watched.lost == ((first * PAGESIZE, behind * PAGESIZE) if behind else (0, 0))
            assert outcome(lambda: watched.touch(number(rng) | 1 << 40)) is not None
            watched.forget()
