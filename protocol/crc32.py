"""The CRC-32 of bodies, many at a time: a compiled loop calls the C function that isal's `crc32` calls, by its address.

A call of the function itself takes a third of the time for a body of 1 KiB. `isal` is linked with the library, or
contains it. See docs/decisions/0018-checksums-by-address.md.
"""

import ctypes
from typing import Final

import numpy as np
from isal import isal_zlib
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import CRC_MASK, Buffer


def slice_crcs(data: Buffer, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the CRC-32 of `data[begins[i]:ends[i]]` for each i, 31 bits as in records. Raises ValueError for a slice
    outside of the data."""
    view = memoryview(data).cast("B")
    bounds = np.ascontiguousarray(begins), np.ascontiguousarray(ends)
    if _address is None:
        return python_slice_crcs(view, *bounds)
    return np.frombuffer(_compiled.slice_crcs(_address, view, *bounds), np.uint32).astype(np.int64) & CRC_MASK


def python_slice_crcs(view: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what `slice_crcs` returns."""
    if ((begins < 0) | (ends < begins) | (ends > len(view))).any():
        raise ValueError(f"a slice is not within {len(view)} bytes")
    bounds = zip(begins.tolist(), ends.tolist(), strict=True)
    return np.array([crc32(view[begin:end]) & CRC_MASK for begin, end in bounds], np.int64)


def crc32_address() -> int | None:
    """Return the address of the function; None if it is not found."""
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


_compiled: Final = compiled.load("columns")
_address: Final = None if _compiled is None else crc32_address()
