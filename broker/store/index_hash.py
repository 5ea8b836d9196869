"""Java's hash of many index keys at once.

h = sum of u[i] * 31^(n-1-i) over the n bytes of a key is 31^n times the sum of u[i] * 31^(-1-i), all modulo 2^32, where
31 has an inverse. So keys of any length lie left-aligned in one matrix, zeros behind them, and one product with the
powers of 1/31 serves all of them; the power of the length comes last. The powers are split into halves of 16 bits, so
that the sums are exact in floating point, where a matrix product is fast.

This holds for ASCII keys, whose bytes are their UTF-16 units. Others, and very long ones, are hashed one by one.

Source: docs/formats.md, "Java hash", "IndexFile".
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocol.disk import index_hash

Numbers: TypeAlias = NDArray[np.int64]

_WIDTHS: Final = (64, 256)  # bytes of a matrix row
_MODULUS: Final = 1 << 32
_INVERSE: Final = pow(31, -1, _MODULUS)
_NEGATIVE_POWERS: Final = [pow(_INVERSE, i + 1, _MODULUS) for i in range(_WIDTHS[-1])]
_HALVES: Final = np.array([(power >> 16, power & 0xFFFF) for power in _NEGATIVE_POWERS], np.float64)
_POWERS: Final = np.array([pow(31, n, _MODULUS) for n in range(_WIDTHS[-1] + 1)], np.uint64)


def int64_array(numbers: Sequence[int]) -> Numbers:
    """The numbers as an array; three times as fast as NumPy's own conversion of a list."""
    return np.frombuffer(array("q", numbers), np.int64)


def hash_keys(keys: Sequence[bytes]) -> Numbers:
    """`protocol.disk.index_hash` of every `topic#key`, given as UTF-8."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    longest = int(lengths.max())
    width = next((width for width in _WIDTHS if longest <= width), 0)
    if not width or not b"".join(keys).isascii():
        return int64_array([index_hash(key.decode("utf-8", "replace")) for key in keys])
    units: NDArray[Any] = np.array(keys, f"S{width}").view(np.uint8).reshape(-1, width)
    halves = (units.astype(np.float64) @ _HALVES[:width]).astype(np.uint64)
    hashes = ((halves[:, 0] << np.uint64(16)) + halves[:, 1]) * _POWERS[lengths]
    return np.abs(hashes.astype(np.uint32).view(np.int32).astype(np.int64)) & 0x7FFF_FFFF
