"""Opaques of a stream of responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.mqbench.response_counter import SHORT, ResponseCounter
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.serialize import encode_command

FIRST = 1_000_000_000
ENOUGH = SHORT // 100


def response(opaque: int, code: int = 0, remark: str | None = None) -> bytes:
    header = SendMessageResponseHeader(msg_id="7F00000100002A9F0000000000000000", queue_id=3, queue_offset=opaque % 97)
    command = RemotingCommand.response(code, remark, header)
    command.opaque = opaque
    return encode_command(command)


def fed(pieces: list[bytes]) -> tuple[list[int], ResponseCounter]:
    responses = ResponseCounter()
    return [int(opaque) for piece in pieces for opaque in responses.feed(piece)], responses


def test_all_opaques_are_found_in_order() -> None:
    """One read may contain few responses or many."""
    for count in (1, 2, ENOUGH, 10 * ENOUGH):
        opaques = [FIRST + n * 7 for n in range(count)]
        first, *others = map(response, opaques)
        assert fed([first, b"".join(others)])[0] == opaques
        assert fed([b"".join([first, *others])])[0] == opaques


@given(st.lists(st.integers(1, 5000), max_size=30), st.sets(st.integers(0, 199), max_size=5))
def test_reads_may_end_anywhere(sizes: list[int], refused: set[int]) -> None:
    """However the stream is split, each response and each rejection is counted once."""
    opaques = [FIRST + n for n in range(200)]
    stream = b"".join(response(opaque, 2 if opaque - FIRST in refused else 0) for opaque in opaques)
    pieces = []
    for size in sizes:
        pieces.append(stream[:size])
        stream = stream[size:]
    found, responses = fed([*pieces, stream])
    assert found == opaques
    assert responses.refused == ({2: len(refused)} if refused else {})


def test_responses_are_counted_byte_by_byte() -> None:
    """The smallest possible reads."""
    stream = b"".join(response(FIRST + n) for n in range(3))
    assert fed([stream[n : n + 1] for n in range(len(stream))])[0] == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize("remark", ["[TIMEOUT_CLEAN_QUEUE]broker busy", 'page "opaque" "opaque":'])
def test_a_rejection_is_counted_by_code_and_its_remark_is_kept(remark: str) -> None:
    """Even if the remark looks like a header."""
    responses = [response(FIRST + n) for n in range(ENOUGH)]
    responses[5] = response(FIRST + 5, 2, remark)
    found, reader = fed([responses[0], b"".join(responses[1:])])
    assert found == [FIRST + n for n in range(ENOUGH)]
    assert reader.refused == {2: 1}
    assert reader.remark.startswith(remark[:5])
