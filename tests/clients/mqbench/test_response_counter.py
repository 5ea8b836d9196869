"""Opaque numbers out of a stream of answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.mqbench.response_counter import SHORT, Answers
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.serialize import encode_command

FIRST = 1_000_000_000
ENOUGH = SHORT // 100


def answer(opaque: int, code: int = 0, remark: str | None = None) -> bytes:
    header = SendMessageResponseHeader(msg_id="7F00000100002A9F0000000000000000", queue_id=3, queue_offset=opaque % 97)
    command = RemotingCommand.response(code, remark, header)
    command.opaque = opaque
    return encode_command(command)


def fed(pieces: list[bytes]) -> tuple[list[int], Answers]:
    answers = Answers()
    return [int(opaque) for piece in pieces for opaque in answers.feed(piece)], answers


def test_all_opaques_are_found_in_their_order() -> None:
    """In one read, of few or of many."""
    for count in (1, 2, ENOUGH, 10 * ENOUGH):
        opaques = [FIRST + n * 7 for n in range(count)]
        first, *others = map(answer, opaques)
        assert fed([first, b"".join(others)])[0] == opaques
        assert fed([b"".join([first, *others])])[0] == opaques


@given(st.lists(st.integers(1, 5000), max_size=30), st.sets(st.integers(0, 199), max_size=5))
def test_reads_may_end_anywhere(sizes: list[int], refused: set[int]) -> None:
    """However the stream is cut, each answer is found once, and each refusal counted once."""
    opaques = [FIRST + n for n in range(200)]
    stream = b"".join(answer(opaque, 2 if opaque - FIRST in refused else 0) for opaque in opaques)
    pieces = []
    for size in sizes:
        pieces.append(stream[:size])
        stream = stream[size:]
    found, answers = fed([*pieces, stream])
    assert found == opaques
    assert answers.refused == ({2: len(refused)} if refused else {})


def test_byte_by_byte() -> None:
    """The smallest reads there are."""
    stream = b"".join(answer(FIRST + n) for n in range(3))
    assert fed([stream[n : n + 1] for n in range(len(stream))])[0] == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize("remark", ["[TIMEOUT_CLEAN_QUEUE]broker busy", 'page "opaque" "opaque":'])
def test_a_refusal_is_counted_by_its_code_and_its_remark_kept(remark: str) -> None:
    """Whatever the remark looks like."""
    answers = [answer(FIRST + n) for n in range(ENOUGH)]
    answers[5] = answer(FIRST + 5, 2, remark)
    found, reader = fed([answers[0], b"".join(answers[1:])])
    assert found == [FIRST + n for n in range(ENOUGH)]
    assert reader.refused == {2: 1}
    assert reader.remark.startswith(remark[:5])
