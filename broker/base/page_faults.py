"""Faults in mapped files, which are handled if the compiled modules can handle SIGBUS (protocol/compiled/faults.py).

Without the compiled modules such a fault ends the process, and faulthandler prints the traceback of the thread. Both
variants check before a read whether a file is shorter than its mapping.
"""

import faulthandler
from collections.abc import Callable
from mmap import mmap
from typing import Any, Final

from skylarkmq.protocol import compiled

_compiled: Final[Any] = compiled.load("faults")


class Unwatched:
    """A mapping whose faults end the process."""

    lost: Final = (0, 0)

    def __init__(self, mapping: mmap) -> None:
        """Do nothing."""

    def touch(self, at: int) -> None:
        """Do nothing: a fault could not be handled."""

    def forget(self) -> None:
        """Do nothing."""


Range: Final[Any] = Unwatched if _compiled is None else _compiled.Range
"""`Range(mapping)`: `touch(at)` triggers the fault of a byte, `lost` is the range of bytes that had one."""


def install() -> None:
    """Print fatal signals with a traceback to stderr; handle faults in watched mappings if that is possible."""
    if not faulthandler.is_enabled():
        faulthandler.enable()
    if _compiled is not None:
        _compiled.install()


def _no_faults() -> int:
    return 0


count: Final[Callable[[], int]] = _no_faults if _compiled is None else _compiled.count
"""Return the number of faults handled since the process began."""
