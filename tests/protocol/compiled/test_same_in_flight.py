"""The compiled module patches frames and matches responses as the NumPy version does."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skylarkmq.clients.mqbench.in_flight import PythonField, PythonInFlight
from skylarkmq.clients.mqbench.response_counter import SHORT, opaques_by_numpy
from skylarkmq.protocol import compiled
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.serialize import encode_command
from tests.harness.rounds import rounds

module = compiled.load("in_flight")

pytestmark = pytest.mark.skipif(module is None, reason="no compiled modules here")

FIRST = 1_000_000_000
STREAMS = rounds(2_000)
"""Number of streams of more than sixty responses each: a hundred thousand and more in all rounds."""


def outcome(call: Callable[[], object]) -> object:
    """Return the result of the call, or its error."""
    try:
        return call()
    except (ValueError, IndexError) as error:
        return type(error), str(error)


def test_random_patches_are_equal() -> None:
    """The same bytes, and the same errors outside of a block or of its fields."""
    rng = random.Random(51)
    complaints = 0
    for _ in range(rounds(3_000)):
        ours, theirs = bytearray(200), bytearray(200)
        width = rng.randint(1, 20)
        places = np.array(sorted(rng.sample(range(200 - width), 9)))
        field, python_version = module.Field(ours, places, width), PythonField(theirs, places, width)
        for _ in range(10):
            first = rng.randint(-1, 9)
            end = rng.randint(first, 10)
            text = rng.randbytes(width + (rng.random() < 0.05))
            found = outcome(lambda: field.fill(first, end, text))  # noqa: B023 (called at once)
            assert found == outcome(lambda: python_version.fill(first, end, text))  # noqa: B023
            complaints += found is not None
        assert ours == theirs
    assert rounds(3_000) < complaints < rounds(15_000)


@pytest.mark.parametrize("make", [PythonField, getattr(module, "Field", None)])
@pytest.mark.parametrize("place", [-1, 91])
def test_a_field_lies_in_its_block(make: Callable[..., Any], place: int) -> None:
    """A field may occupy the block from its first to its last byte, and no other bytes."""
    with pytest.raises(ValueError, match=r"10 bytes at .* are not within the 100"):
        make(bytearray(100), np.array([0, 90, place]), 10)


def test_random_frames_in_flight_are_matched_alike() -> None:
    """Frames in large numbers are sent and matched: the same are free, with the same times, whatever is answered."""
    rng = random.Random(52)
    frames, step = 70, 100
    in_flight, python_version = module.InFlight(frames, step), PythonInFlight(frames, step)
    seen = complaints = 0
    under_way: set[int] = set()
    for now_ns in range(0, rounds(20_000_000), 1_000):
        first = rng.randint(-1, frames)
        end = rng.randint(max(first, 0), frames + (rng.random() < 0.05))
        free = outcome(lambda: in_flight.free_end(first, end))  # noqa: B023
        assert free == outcome(lambda: python_version.free_end(first, end))  # noqa: B023
        complaints += isinstance(free, tuple)
        if isinstance(free, int):
            opaque = FIRST + rng.randint(0, 50) * step
            at_ns: Any = now_ns if rng.random() < 0.7 else now_ns - np.arange(free - first)
            in_flight.mark_sent(first, free, opaque, at_ns)
            python_version.mark_sent(first, free, opaque, at_ns)
            seen += free - first
            under_way.update(range(opaque + first, opaque + free))
        answered = rng.sample(sorted(under_way), rng.randint(0, len(under_way)))
        strays = [FIRST + rng.randint(0, 51 * step) for _ in range(rng.choice([0, 0, 0, 5]))]
        opaques = np.array(answered + strays + answered[: len(strays)], np.int64)
        under_way.difference_update(opaques.tolist())
        taken_ns = in_flight.match(opaques, now_ns + 500)
        assert taken_ns.tolist() == python_version.match(opaques, now_ns + 500).tolist()
        assert len(answered) <= len(taken_ns) <= len(answered) + len(strays)
    assert seen > rounds(100_000)
    assert complaints > rounds(200)


@pytest.mark.parametrize("make", [PythonInFlight, getattr(module, "InFlight", None)])
def test_invalid_parameters_are_rejected(make: Callable[..., Any]) -> None:
    """There must be as many send times as frames."""
    with pytest.raises(ValueError, match="20 frames with opaques modulo 10"):
        make(20, 10)
    with pytest.raises(ValueError, match="3"):
        make(20, 100).mark_sent(0, 2, FIRST, np.zeros(3, np.int64))


def test_random_responses_give_the_same_opaques() -> None:
    """A stream of responses, some of them refusals, cut at any byte: the same opaques of each read."""
    rng = random.Random(53)
    seen = unusual = 0
    for _ in range(STREAMS):
        rows = [response(rng) for _ in range(SHORT // 128 + rng.randint(2, 40))]
        stream = b"".join(rows)
        behind = len(rows[0]) - rows[0].index(b'"opaque":') - 19
        begin = len(rows[0]) - behind
        stream = stream[begin : rng.randint(begin + SHORT, len(stream))]
        found, expected = module.opaques_in_common_layout(stream, behind), opaques_by_numpy(stream, behind)
        if found is None or expected is None:
            assert found is expected
            unusual += 1
            continue
        assert (found[0].tolist(), found[1]) == (expected[0].tolist(), expected[1])
        seen += len(found[0])
    assert seen > rounds(100_000) * 2 // 3
    assert STREAMS // 20 < unusual < STREAMS // 2


def response(rng: random.Random) -> bytes:
    """Return a response, mostly of success."""
    header = SendMessageResponseHeader(
        msg_id="7F00000100002A9F0000000000000000", queue_id=3, queue_offset=rng.randrange(10 ** rng.randint(1, 12))
    )
    is_refused = rng.random() < 0.004
    command = RemotingCommand.response(2 if is_refused else 0, "busy" if is_refused else None, header)
    command.opaque = FIRST + rng.randrange(FIRST)
    return encode_command(command)


def test_a_response_counts_once_its_opaque_is_complete() -> None:
    """A response counts once the last digit of its opaque is there; one with an invalid length is left to other
    code."""
    first, second = response(random.Random(1)), response(random.Random(2))
    behind = len(first) - first.index(b'"opaque":') - 19
    data = first[len(first) - behind :] + second
    end = len(data) - behind
    assert module.opaques_in_common_layout(data[: end - 1], behind)[1] == 0
    assert module.opaques_in_common_layout(data[:end], behind)[1] == end
    assert module.opaques_in_common_layout(data[:behind] + b"\0\0\0\1" + data[behind + 4 :], behind) is None
    with pytest.raises(ValueError, match="-1"):
        module.opaques_in_common_layout(data, -1)
