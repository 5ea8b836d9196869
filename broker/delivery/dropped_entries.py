"""Dropped entries of internal topics: each is counted, and logged once, within limits.

A store may contain millions of bad entries, written by another version or damaged by a disk. A service logs the first
MOST_LOGGED of them with a line each, and after that only each power of ten, with the total so far.
"""

import logging
from typing import Final

MOST_LOGGED: Final = 10


class DroppedEntries:
    """Counts the dropped entries of one service and logs them to `log`; `what` is their name in each line."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self.count = 0

    def __repr__(self) -> str:
        return f"<DroppedEntries {self._what} {self.count}>"

    def note(self, where: str, reason: object) -> None:
        """Count one entry; its line contains its position `where` and the reason."""
        self.count += 1
        if self.count <= MOST_LOGGED or str(self.count).strip("0") == "1":
            self._log.warning("%s dropped total=%d %s reason=%s", self._what, self.count, where, reason)
