"""What changes of prepared frames between one send and the next: their patched fields, and which are under way.

Both are one indexed read or write of NumPy for all frames that leave or are answered together; a field is the block
seen as an array of overlapping texts, one at each byte. Where compiled leaves are, they do it
(protocol/compiled/in_flight.py): with few frames to a read the calls of NumPy cost more than all else a load does.
"""

from typing import Final

import numpy as np

from skylarkmq.clients.mqbench.histogram import Ints
from skylarkmq.protocol import compiled

ANSWERED: Final = -1


class PythonField:
    """Places of one width in a block, as many as there are frames, or several times as many."""

    def __init__(self, block: bytearray, places: Ints, width: int) -> None:
        """`places` begin in the block, and end there. ValueError."""
        if places.min() < 0 or places.max() > len(block) - width:
            raise ValueError(f"{width} bytes at {places.max()} are not within the {len(block)} bytes of the block")
        self._width = width
        self._places = places
        self._texts = np.ndarray((len(block) - width + 1,), f"S{width}", block, strides=(1,))

    def fill(self, first: int, end: int, text: bytes) -> None:
        """Write a text of the field's width at places `first` to `end`. ValueError, IndexError."""
        if len(text) != self._width:
            raise ValueError(f"{len(text)} bytes for a field of {self._width}")
        check(first, end, len(self._places))
        self._texts[self._places[first:end]] = text


class PythonInFlight:
    """Under which opaque each frame of a block is under way, and since when."""

    def __init__(self, frames: int, step: int) -> None:
        """The opaque of frame n is n more than a multiple of `step`. ValueError."""
        if frames <= 0 or step < frames:
            raise ValueError(f"{frames} frames with opaques modulo {step}")
        self._step = step
        self._numbers: Ints = np.arange(frames)
        self._opaques: Ints = np.full(frames, ANSWERED)
        self._sent_ns: Ints = np.zeros(frames, np.int64)

    def free_end(self, first: int, end: int) -> int:
        """The first of these frames that is still under way; `end` if none is. IndexError."""
        check(first, end, len(self._opaques))
        busy = self._opaques[first:end] != ANSWERED
        return first + int(busy.argmax()) if busy.any() else end

    def mark_sent(self, first: int, end: int, opaque: int, at_ns: int | Ints) -> None:
        """Frames leave, all at one time or each at its own; `opaque` is that of frame 0. IndexError, ValueError."""
        check(first, end, len(self._opaques))
        self._sent_ns[first:end] = at_ns
        self._opaques[first:end] = self._numbers[first:end] + opaque

    def match(self, opaques: Ints, now_ns: int) -> Ints:
        """How long those took (ns) that are under way by these opaques; they are answered. Others have no time."""
        frames = opaques % self._step
        known = np.flatnonzero(self._opaques[np.minimum(frames, len(self._opaques) - 1)] == opaques)
        if len(known) < len(opaques) or len(np.unique(frames)) < len(frames):
            known = known[np.sort(np.unique(frames[known], return_index=True)[1])]
            frames = frames[known]
        self._opaques[frames] = ANSWERED
        return now_ns - self._sent_ns[frames]


def check(first: int, end: int, count: int) -> None:
    """IndexError, unless `[first, end)` is within so many."""
    if first < 0 or end > count:
        raise IndexError(f"[{first}, {end}) is not within {count}")


_leaf = compiled.load("in_flight")
Field: type[PythonField] = PythonField if _leaf is None else _leaf.Field
InFlight: type[PythonInFlight] = PythonInFlight if _leaf is None else _leaf.InFlight
