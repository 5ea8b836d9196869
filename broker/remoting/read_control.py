"""The interface through which the writing half of a connection controls the reading half."""

from typing import Protocol


class ReadControl(Protocol):
    """The part of a connection's read control that the writer uses."""

    def pause_for_backlog(self) -> None:
        """Pause reads: the peer's backlog exceeds its limit."""

    def progressed(self) -> None:
        """Record that the peer took some output."""

    def drained(self) -> None:
        """Record that the peer took all output."""


class NoReadControl:
    """Replaces the reading half after the connection is closed, so that neither keeps the other alive."""

    def pause_for_backlog(self) -> None:
        pass

    progressed = drained = pause_for_backlog
