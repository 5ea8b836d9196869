"""Exclusive locks on files, on each platform with the module that it has: fcntl, or msvcrt on Windows.

The operating system releases a lock when its descriptor is closed or its process ends.
"""

from importlib import import_module
from typing import Any


def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


_fcntl = _optional("fcntl")
_msvcrt = _optional("msvcrt")


def lock(descriptor: int) -> None:
    """Lock an open file for this process. OSError if another descriptor holds the lock, or locks are not supported."""
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    elif _msvcrt is not None:
        _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
    else:
        raise OSError("this platform has no file locks")
