"""Which requests were answered, out of a stream of answers that have no bodies.

Answers are not decoded. A compiled module looks for `"opaque":` (protocol/compiled/in_flight.py; else NumPy does, for
the two letters which tell that from all else in an accepted answer), takes the ten digits behind it (see `prepared`:
all opaques of ours have ten), and looks whether the code at the beginning of each header is 0. What is behind the
digits of an opaque has one length for all answers of a broker, which the first answer tells; so the place of the next
code is known.

Where that does not hold (an answer was refused, a remark looks like an opaque) the same bytes are read again, by
regular expressions; and so are few answers where there is no leaf, since that is sooner. An answer counts once it has
arrived up to its opaque; what is behind that waits for the next read.
"""

import re
from collections import Counter
from typing import Final

import numpy as np
import numpy.typing as npt

from skylarkmq.clients.mqbench.histogram import Ints
from skylarkmq.protocol import compiled

DIGITS: Final = 10
SHORT: Final = 8192  # bytes: fewer answers than NumPy's calls are worth
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
OF_ZEROS: Final = 48 * POWERS.sum()  # what ten times the letter 0 add up to

_NOTHING: Final[Ints] = np.zeros(0, np.int64)


class Answers:
    """One connection's answers. `refused` counts codes but 0, `refusals` all of them; `remark` came with the first."""

    __slots__ = ("_behind", "_rest", "refusals", "refused", "remark")

    def __init__(self) -> None:
        self._rest = b""
        self._behind = 0  # bytes of an answer behind its opaque
        self.refused: Counter[int] = Counter()
        self.refusals = 0
        self.remark = ""

    def __repr__(self) -> str:
        return f"<Answers refused={dict(self.refused)}>"

    def feed(self, data: bytes) -> Ints:
        """The opaque numbers that a read completes, in their order."""
        if self._rest:
            data = self._rest + data
        plain = opaques_in_common_layout(data, self._behind) if self._behind and len(data) >= LEAST else None
        opaques, last = plain or self._look(data)
        self._rest = data[last:]
        return opaques

    def _look(self, data: bytes) -> tuple[Ints, int]:
        """As `feed`, for any answers; returns also where what it took ends."""
        found = OPAQUE.findall(data)
        if not found:
            return _NOTHING, 0
        last = data.rindex(MARK + found[-1]) + MARKED
        if not self._behind:
            self._behind = 4 + int.from_bytes(data[:4], "big") - data.index(MARK + found[0]) - MARKED
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


def opaques_by_numpy(data: bytes, behind: int) -> tuple[Ints, int] | None:
    """The opaques of accepted answers, each with so many bytes behind its own, and where the last one ends.

    None if one was refused, or is not as the others. `data` begins with what is behind an answer's opaque.
    """
    text = np.frombuffer(data, np.uint8)
    letters = np.flatnonzero(text[: 1 - BEHIND_P - DIGITS] == LETTER_P)
    ends = letters[text[letters + 1] == LETTER_A] + (BEHIND_P + DIGITS)
    if not len(ends):
        return _NOTHING, 0
    last = int(ends[-1])
    codes_at = np.concatenate(((0,), ends[:-1])) + (behind + CODE_AT)
    if codes_at[-1] >= last or not ((text[codes_at] == ZERO) & (text[codes_at + 1] == COMMA)).all():
        return None
    return numbers(data, ends - DIGITS), last


def numbers(data: bytes, at: Ints) -> Ints:
    """The numbers of ten digits that stand at places of a text."""
    texts: npt.NDArray[np.bytes_] = np.ndarray((len(data) - DIGITS + 1,), f"S{DIGITS}", data, strides=(1,))
    digits = texts[at].view(np.uint8).reshape(len(at), DIGITS)
    found: Ints = (digits.astype(np.float64) @ POWERS - OF_ZEROS).astype(np.int64)
    return found


_leaf = compiled.load("in_flight")
opaques_in_common_layout = opaques_by_numpy if _leaf is None else _leaf.opaques_in_common_layout
LEAST: Final = SHORT if _leaf is None else 0
