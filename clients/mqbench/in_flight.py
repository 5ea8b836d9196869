"""The patched fields of prepared frames, and the frames in flight.

For all frames that are sent or acknowledged together, each operation is one indexed read or write of NumPy; a field is
the block seen as an array of overlapping texts, one at each byte. The compiled module protocol/compiled/in_flight.py
does the same: with few frames per read, NumPy's calls cost more than the rest of a load.
"""

from typing import Final

import numpy as np

from skylarkmq.clients.mqbench.histogram import Ints
from skylarkmq.protocol import compiled

IDLE: Final = -1


class PythonField:
    """A field of one width at many positions of a block: one per frame, or several."""

    def __init__(self, block: bytearray, positions: Ints, width: int) -> None:
        """`positions` are where the field begins in the block. Raises ValueError if one is outside the block."""
        if positions.min() < 0 or positions.max() > len(block) - width:
            raise ValueError(f"{width} bytes at {positions.max()} are not within the {len(block)} bytes of the block")
        self._width = width
        self._positions = positions
        self._texts = np.ndarray((len(block) - width + 1,), f"S{width}", block, strides=(1,))

    def fill(self, first: int, end: int, text: bytes) -> None:
        """Write a text of the field's width at the positions `first` to `end`. Raises ValueError, IndexError."""
        if len(text) != self._width:
            raise ValueError(f"{len(text)} bytes for a field of {self._width}")
        check(first, end, len(self._positions))
        self._texts[self._positions[first:end]] = text


class PythonInFlight:
    """The opaque and the start time of each frame of a block that is in flight."""

    def __init__(self, frames: int, step: int) -> None:
        """The opaque of frame n is n plus a multiple of `step`. Raises ValueError."""
        if frames <= 0 or step < frames:
            raise ValueError(f"{frames} frames with opaques modulo {step}")
        self._step = step
        self._numbers: Ints = np.arange(frames)
        self._opaques: Ints = np.full(frames, IDLE)
        self._sent_ns: Ints = np.zeros(frames, np.int64)

    def free_end(self, first: int, end: int) -> int:
        """Return the first of these frames that is still in flight, or `end`. Raises IndexError."""
        check(first, end, len(self._opaques))
        busy = self._opaques[first:end] != IDLE
        return first + int(busy.argmax()) if busy.any() else end

    def mark_sent(self, first: int, end: int, opaque: int, at_ns: int | Ints) -> None:
        """Mark frames as sent, at one time or each at its own; `opaque` is the opaque of frame 0.

        Raises IndexError, ValueError.
        """
        check(first, end, len(self._opaques))
        self._sent_ns[first:end] = at_ns
        self._opaques[first:end] = self._numbers[first:end] + opaque

    def match(self, opaques: Ints, now_ns: int) -> Ints:
        """Return the latencies (ns) of the frames in flight with these opaques, and clear them.

        Unknown opaques have none.
        """
        frames = opaques % self._step
        known = np.flatnonzero(self._opaques[np.minimum(frames, len(self._opaques) - 1)] == opaques)
        if len(known) < len(opaques) or len(np.unique(frames)) < len(frames):
            known = known[np.sort(np.unique(frames[known], return_index=True)[1])]
            frames = frames[known]
        self._opaques[frames] = IDLE
        return now_ns - self._sent_ns[frames]


def check(first: int, end: int, count: int) -> None:
    """Raise IndexError unless `[first, end)` is within `count`."""
    if first < 0 or end > count:
        raise IndexError(f"[{first}, {end}) is not within {count}")


_compiled = compiled.load("in_flight")
Field: type[PythonField] = PythonField if _compiled is None else _compiled.Field
InFlight: type[PythonInFlight] = PythonInFlight if _compiled is None else _compiled.InFlight
