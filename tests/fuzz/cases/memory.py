"""Memory and damaged inputs for the fuzzers."""

from random import Random
from typing import Final

import numpy as np

INT64: Final = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 1 << 40)
LENGTHS: Final = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\0\0\0\0", b"\xff\xff", b"\x7f\xff")


def exact(data: bytes) -> memoryview:
    """Return the same bytes in memory of exactly their length. `bytes` and `bytearray` have a zero after them."""
    return np.array(bytearray(data), np.uint8).data


def number(rng: Random) -> int:
    """Return a number of 64 bits, often an extreme one."""
    return rng.choice(INT64) if rng.random() < 0.5 else rng.getrandbits(64) - (1 << 63)


def damaged(rng: Random, data: bytes, most: int = 4) -> bytes:
    """Return the bytes with a few changed, cut out, doubled, or replaced by extreme lengths."""
    bad = bytearray(data)
    for _ in range(rng.randint(1, most)):
        at, kind = rng.randrange(len(bad) + 1), rng.randrange(6)
        if kind == 0 and at < len(bad):
            bad[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(bad):
            bad[at] = rng.choice((0, 1, 2, 34, 92, 127, 128, 255))
        elif kind == 2:
            del bad[at : at + rng.randrange(1, 9)]
        elif kind == 3:
            bad[at:at] = bad[rng.randrange(len(bad) + 1) :][: rng.randrange(1, 40)]
        elif kind == 4:
            length = rng.choice(LENGTHS)
            bad[at : at + len(length)] = length
        else:
            del bad[at:]
    return bytes(bad)
