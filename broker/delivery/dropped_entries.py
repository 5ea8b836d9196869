"""Entries of internal topics that are dropped: each is counted, and logged once, within limits.

A store may hold millions of bad entries, written by another version or left by a damaged disk. The first MOST_LOGGED of
a service have a line each; after that only every power of ten has one, with the count so far.
"""

import logging
from typing import Final

MOST_LOGGED: Final = 10


class Dropped:
    """Counts the dropped entries of one service and logs them to `log`; `what` names them in each line."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self.count = 0

    def __repr__(self) -> str:
        return f"<Dropped {self._what} {self.count}>"

    def note(self, where: str, reason: object) -> None:
        """Count one entry; `where` it lies and the reason stand in its line."""
        self.count += 1
        if self.count <= MOST_LOGGED or str(self.count).strip("0") == "1":
            self._log.warning("%s dropped total=%d %s reason=%s", self._what, self.count, where, reason)
