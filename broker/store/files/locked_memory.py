"""Memory that the kernel may not evict: mlock, munlock and madvise on a mapping, through libc.

A process may lock at most RLIMIT_MEMLOCK bytes. Memory that cannot be locked is used unlocked. That only costs speed
when memory is short, so it is a warning and not an error.

Locking a gigabyte reads all of it into memory and takes long. The calls release the GIL; make them in a helper thread
or during the start. The view that is passed in keeps its mapping alive meanwhile.
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
    """Read `memory` in and lock it. False: it could not be locked; a warning with `name` is logged."""
    address, size = _range_of(memory)
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_WILLNEED)
    if _libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0:
        return True
    problem = os.strerror(ctypes.get_errno())
    log.warning("memory not locked name=%s bytes=%d error=%s (see RLIMIT_MEMLOCK)", name, size, problem)
    return False


def unlock(memory: memoryview) -> None:
    """Unlock `memory`. Memory that was never locked is accepted."""
    address, size = _range_of(memory)
    _libc.munlock(ctypes.c_void_p(address), ctypes.c_size_t(size))


def _range_of(memory: memoryview) -> tuple[int, int]:
    whole = np.frombuffer(memory, np.uint8)
    return whole.ctypes.data, whole.size
