"""The compiled module finds the same records in queue units as the pure-Python version, and writes the same heads."""

import mmap
import random
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.processors.pull.response import found_pieces, pull_response_head, python_found_head
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.disk import UNIT
from skylarkmq.protocol.unit_runs import MOST_UNITS, PythonUnitRun
from tests.harness.rounds import rounds

module = compiled.load("gather")

pytestmark = pytest.mark.skipif(module is None, reason="no compiled modules here")

SEGMENT_BYTES = 1 << 16


class Segment(msgspec.Struct):
    """A segment with the attributes that `unit_runs.Segment` requires."""

    start: int
    view: memoryview
    is_deleted: bool = False


def test_random_runs_are_equal() -> None:
    """Random runs of records, most of them in order: the same lengths, and the same records are taken."""
    rng = random.Random(20)
    view = memoryview(rng.randbytes(SEGMENT_BYTES))
    lengths = set()
    for _ in range(rounds(10_000)):
        segment = Segment(rng.choice((0, 1 << 30, (1 << 62) - SEGMENT_BYTES, rng.getrandbits(50))), view)
        units = random_units(rng, segment.start, rng.choice((1, 10, MOST_UNITS, 3 * MOST_UNITS)))
        limit, span = segment.start + rng.choice((SEGMENT_BYTES, 20_000)), rng.choice((SEGMENT_BYTES, 10_000))
        first, longest = rng.getrandbits(40), rng.choice((290, 400))
        runs = [made(first, units, segment, limit, span, longest) for made in (PythonUnitRun, module.UnitRun)]
        lengths.add(runs[0].count)
        assert len({(it.first, it.count, it.count and it.begin, it.end) for it in runs}) == 1
        for _ in range(3):
            arguments = first + rng.randrange(-2, 80), rng.randrange(-1, MOST_UNITS + 3), rng.randrange(10_000)
            plain, found = [attributes_of(it.take(*arguments)) for it in runs]
            assert plain == found
    assert len(lengths) > MOST_UNITS


def attributes_of(records: Any) -> object:
    """Return all visible attributes."""
    if records is None:
        return None
    figures = records.count, records.size, records.begin, records.last, records.is_run
    region = records.position, records.fd, records.is_hot
    return figures, region, bytes(records.view), b"".join(records.parts_after(b"head"))


def random_units(rng: random.Random, start: int, most: int) -> bytes:
    """Return units of records, most of them adjacent."""
    at, units = start + rng.randrange(500), []
    for _ in range(rng.randrange(most + 1)):
        size = rng.randint(1, 300)
        if rng.random() < 0.01:
            at, size = rng.choice(((at - 200, size), (at, 0), (at, -size), (at + SEGMENT_BYTES, size), (at, 2**31 - 1)))
        units.append(UNIT.pack(at, size, rng.getrandbits(63) - (1 << 62)))
        at += max(size, 0) + rng.choice((0, 0, 100))
    return b"".join(units)


def test_records_pin_their_segment() -> None:
    """While records exist their segment stays mapped, as it does with views."""
    mapped = mmap.mmap(-1, 4096)
    run = module.UnitRun(0, UNIT.pack(0, 100, 0), Segment(0, memoryview(mapped)), 4096, 4096, 1000)
    records = run.take(0, 1, 100)
    with pytest.raises(BufferError):
        mapped.close()
    assert bytes(records) == bytes(100)
    del records, run
    mapped.close()


def test_heads_are_equal() -> None:
    """A thousand heads with random numbers: the same bytes from both versions and from the general template."""
    rng = random.Random(21)
    for _ in range(1_000):
        topic = TopicConfig("t", topic_sys_flag=rng.randrange(4))
        group = SubscriptionGroupConfig("g", group_sys_flag=rng.randrange(4))
        largest, smallest, following = (rng.choice((0, 1, -1, 1 << 62, rng.getrandbits(40))) for _ in range(3))
        opaque, size, ask_next = rng.choice((0, -7, 2**31 - 1, -(2**31))), rng.randrange(1 << 20), rng.randrange(3)
        numbers = largest, smallest, following, opaque, size
        pieces = found_pieces(topic, group, ask_next)
        result = GetResult(GetStatus.FOUND, following, smallest, largest, total_bytes=size)
        request = RemotingCommand(11, opaque=opaque)
        general = pull_response_head(request, ResponseCode.SUCCESS, result, topic, group, ask_next)
        assert module.found_head(pieces, *numbers) == python_found_head(pieces, *numbers) == general


@pytest.mark.parametrize("pieces", [(), (b"",) * 4, (b"",) * 6, (b"", b"", "", b"", b"")])
def test_invalid_pieces_are_rejected(pieces: tuple[Any, ...]) -> None:
    """Invalid pieces raise an error, and no other memory is read."""
    with pytest.raises((ValueError, TypeError)):
        module.found_head(pieces, 1, 2, 3, 4, 5)
