"""The CRC-32 of bodies, for compiled modules: the address of the C function that isal's `crc32` calls.

A call of the function itself takes a third of the time for a body of 1 KiB. `isal` is linked with the library, or
contains it.
"""

import ctypes

from isal import isal_zlib


def crc32_address() -> int | None:
    """Return the address of the function; None if it is not found."""
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
