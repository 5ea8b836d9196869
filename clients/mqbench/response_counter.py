"""Finds the opaques in a stream of responses without bodies.

Responses are not decoded. A compiled module (protocol/compiled/in_flight.py) searches for `"opaque":`; without it,
NumPy searches for the two letters that distinguish this key from all other text in a successful response. Then the ten
digits after the key are read (see `prepared_frames`: all of our opaques have ten), and the code at the beginning of
each header is compared with 0. The bytes after the opaque have the same length in all responses of a broker. The first
response determines this length, and thereby the position of the next code.

If that does not hold (a request was rejected, a remark looks like an opaque), regular expressions read the same bytes
again. They also read short data if there is no compiled module, because they are faster there. A response counts once
it has arrived up to its opaque; the bytes after that are skipped in the next read.
"""

import re
from collections import Counter
from typing import Final

import numpy as np
import numpy.typing as npt

from skylarkmq.clients.mqbench.histogram import Ints
from skylarkmq.protocol import compiled

DIGITS: Final = 10
SHORT: Final = 8192  # bytes; for fewer responses, NumPy's calls do not pay off
CODE_AT: Final = 16  # in a frame: length words, then {"code":
LETTER_P, LETTER_A, ZERO, COMMA = b"pa0,"
BEHIND_P: Final = len('paque":')
MARK: Final = b'"opaque":'
MARKED: Final = len(MARK) + DIGITS
OPAQUE: Final = re.compile(MARK + rb"(\d{%d})" % DIGITS)
ACCEPTED: Final = b'{"code":0,'
CODE: Final = re.compile(rb'"code":(\d+)')
REMARK: Final = re.compile(rb'"remark":"((?:[^"\\]|\\.)*)')
POWERS: Final = 10.0 ** np.arange(DIGITS - 1, -1, -1)
OF_ZEROS: Final = 48 * POWERS.sum()  # the sum of ten characters "0", by powers of ten

_NOTHING: Final[Ints] = np.zeros(0, np.int64)


class ResponseCounter:
    """Counts the responses of one connection: `refused` by code, `refusals` in total; `remark` is the remark of the
    first."""

    __slots__ = ("_rest", "_tail_bytes", "refusals", "refused", "remark")

    def __init__(self) -> None:
        self._rest = b""
        self._tail_bytes = 0  # bytes of a response after its opaque
        self.refused: Counter[int] = Counter()
        self.refusals = 0
        self.remark = ""

    def __repr__(self) -> str:
        return f"<ResponseCounter refused={dict(self.refused)}>"

    def feed(self, data: bytes) -> Ints:
        """Return the opaques that a read completes, in order."""
        if self._rest:
            data = self._rest + data
        found = opaques_in_common_layout(data, self._tail_bytes) if self._tail_bytes and len(data) >= LEAST else None
        opaques, last = found or self._feed_by_regex(data)
        self._rest = data[last:]
        return opaques

    def _feed_by_regex(self, data: bytes) -> tuple[Ints, int]:
        """Like `feed`, for any responses; also return the end of the bytes that were read."""
        found = OPAQUE.findall(data)
        if not found:
            return _NOTHING, 0
        last = data.rindex(MARK + found[-1]) + MARKED
        if not self._tail_bytes:
            self._tail_bytes = 4 + int.from_bytes(data[:4], "big") - data.index(MARK + found[0]) - MARKED
        if data.count(ACCEPTED, 0, last) < len(found):
            self._count_refusals(data, last)
        return np.array(list(map(int, found))), last

    def _count_refusals(self, data: bytes, last: int) -> None:
        codes = Counter(int(code) for code in CODE.findall(data, 0, last))
        del codes[0]
        self.refused += codes
        self.refusals += codes.total()
        remark = REMARK.search(data)
        if remark and not self.remark:
            self.remark = remark[1].decode(errors="replace")


def opaques_by_numpy(data: bytes, tail_bytes: int) -> tuple[Ints, int] | None:
    """Return the opaques of successful responses, followed by `tail_bytes` bytes each, and the end of the last one.

    None if a request was rejected, or a response has another length. `data` begins with the bytes after an opaque.
    """
    text = np.frombuffer(data, np.uint8)
    letters = np.flatnonzero(text[: 1 - BEHIND_P - DIGITS] == LETTER_P)
    ends = letters[text[letters + 1] == LETTER_A] + (BEHIND_P + DIGITS)
    if not len(ends):
        return _NOTHING, 0
    last = int(ends[-1])
    codes_at = np.concatenate(((0,), ends[:-1])) + (tail_bytes + CODE_AT)
    if codes_at[-1] >= last or not ((text[codes_at] == ZERO) & (text[codes_at + 1] == COMMA)).all():
        return None
    return numbers(data, ends - DIGITS), last


def numbers(data: bytes, at: Ints) -> Ints:
    """Return the numbers of ten digits at these positions of a text."""
    texts: npt.NDArray[np.bytes_] = np.ndarray((len(data) - DIGITS + 1,), f"S{DIGITS}", data, strides=(1,))
    digits = texts[at].view(np.uint8).reshape(len(at), DIGITS)
    found: Ints = (digits.astype(np.float64) @ POWERS - OF_ZEROS).astype(np.int64)
    return found


_compiled = compiled.load("in_flight")
opaques_in_common_layout = opaques_by_numpy if _compiled is None else _compiled.opaques_in_common_layout
LEAST: Final = SHORT if _compiled is None else 0
