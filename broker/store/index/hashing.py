"""Java's hash of many index keys at once.

The hash of a key of n bytes u[0..n-1] is h = sum of u[i] * 31^(n-1-i). If the key is at [begin, end) of a longer byte
string, then h is 31^end times the sum of u[p] * 31^(-1-p) over the positions p of the key, modulo 2^32, where 31 has an
inverse. So all keys are joined into one string, one product weighs every byte, one reduction adds up the bytes of each
key, and the power of its end is multiplied last. The prefix of a key (`topic#`) is given by its hash, which is
multiplied by 31^n and added.

This works for ASCII keys, whose bytes are their UTF-16 units. Other keys, very long ones and small batches are hashed
one by one.

Source: docs/reference/wire.md, "Java hash"; docs/reference/disk.md, "IndexFile".
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skylarkmq.protocol.message import java_hash

Numbers: TypeAlias = NDArray[np.int64]

_FEW: Final = 16  # for fewer keys NumPy's calls cost more than they save
_ROW: Final = 1 << 16  # bytes hashed at once
_MASK: Final = 0xFFFF_FFFF
_INVERSE: Final = pow(31, -1, _MASK + 1)


def _powers(base: int) -> NDArray[np.uint32]:
    factors = np.full(_ROW + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS: Final = _powers(31)
_WEIGHTS: Final = _powers(_INVERSE)[1:]


def int64_array(numbers: Sequence[int]) -> Numbers:
    """Return the numbers as an array, three times as fast as NumPy's own conversion of a list."""
    return np.frombuffer(array("q", numbers), np.int64)


def hash_keys(keys: Sequence[bytes], prefixes: Numbers | None = None) -> Numbers:
    """Return Java's hash without its sign (`protocol.disk.index_hash`) for each key, given as UTF-8.

    `prefixes`: for each key the unsigned hash of its prefix.
    """
    if prefixes is None:
        prefixes = np.zeros(len(keys), np.int64)
    joined = b"".join(keys)
    if len(keys) > 1 and len(joined) > _ROW:
        half = len(keys) // 2
        return np.concatenate((hash_keys(keys[:half], prefixes[:half]), hash_keys(keys[half:], prefixes[half:])))
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    if len(keys) < _FEW or len(joined) > _ROW or not joined.isascii() or not lengths.all():
        return int64_array([_hash_one(key, prefix) for key, prefix in zip(keys, prefixes.tolist(), strict=True)])
    ends = np.cumsum(lengths)
    weighed: NDArray[Any] = np.frombuffer(joined, np.uint8) * _WEIGHTS[: len(joined)]
    hashes = np.add.reduceat(weighed, ends - lengths, dtype=np.uint32) * _POWERS[ends]
    hashes += prefixes.astype(np.uint32) * _POWERS[lengths]
    return np.abs(hashes.view(np.int32).astype(np.int64)) & 0x7FFF_FFFF


def _hash_one(key: bytes, prefix: int) -> int:
    text = key.decode("utf-8", "replace")
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    unsigned = (prefix * pow(31, units, _MASK + 1) + java_hash(text)) & _MASK
    return abs(unsigned - ((unsigned & 0x8000_0000) << 1)) & 0x7FFF_FFFF
