"""Faults in mapped files: watched where the compiled modules can handle SIGBUS (protocol/compiled/faults.py).

Without them such a fault ends the process, and faulthandler prints which thread read what. What can be checked before a
read is checked in both variants: a file that is shorter than its mapping.
"""

import faulthandler
from collections.abc import Callable
from mmap import mmap
from typing import Any, Final

from skylarkmq.protocol import compiled

_leaf: Final[Any] = compiled.load("faults")


class Unwatched:
    """A mapping whose faults end the process."""

    lost: Final = (0, 0)

    def __init__(self, mapping: mmap) -> None:
        """Nothing is kept of it."""

    def touch(self, at: int) -> None:
        """Nothing: a fault could not be handled."""

    def forget(self) -> None:
        """Nothing was kept."""


Range: Final[Any] = Unwatched if _leaf is None else _leaf.Range
"""`Range(mapping)`: `touch(at)` has the fault of a byte come now, `lost` are the bytes that had one."""


def install() -> None:
    """Print fatal signals with a traceback to stderr; handle those of watched mappings, where that is possible."""
    if not faulthandler.is_enabled():
        faulthandler.enable()
    if _leaf is not None:
        _leaf.install()


def _no_faults() -> int:
    return 0


count: Final[Callable[[], int]] = _no_faults if _leaf is None else _leaf.count
"""Faults that were handled since the process began."""
