"""Memory that the kernel may not take away: mlock, munlock and madvise on a mapping, by way of libc.

A process may lock no more than RLIMIT_MEMLOCK. What cannot be locked is used as it is: that costs speed when memory is
short and changes nothing else, so it is a warning and no error.

Locking a gigabyte brings all of it in and takes its time; the calls release the GIL and belong into a helper thread
or a start. The view passed in keeps its mapping alive meanwhile.
"""

import ctypes
import logging
import os
from typing import Final

import numpy as np

log = logging.getLogger(__name__)

_MADV_WILLNEED: Final = 3
_libc: Final = ctypes.CDLL(None, use_errno=True)


def lock(memory: memoryview, name: str) -> bool:
    """Bring `memory` in and keep it there. False: it could not be locked, as a warning says with this `name`."""
    address, size = _range_of(memory)
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_WILLNEED)
    if _libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0:
        return True
    problem = os.strerror(ctypes.get_errno())
    log.warning("memory not locked name=%s bytes=%d error=%s (see RLIMIT_MEMLOCK)", name, size, problem)
    return False


def unlock(memory: memoryview) -> None:
    """The kernel may take it again; also fine for what was never locked."""
    address, size = _range_of(memory)
    _libc.munlock(ctypes.c_void_p(address), ctypes.c_size_t(size))


def _range_of(memory: memoryview) -> tuple[int, int]:
    whole = np.frombuffer(memory, np.uint8)
    return whole.ctypes.data, whole.size
