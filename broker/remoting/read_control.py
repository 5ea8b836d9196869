"""What the writing half of a connection tells the reading half."""

from typing import Protocol


class ReadControl(Protocol):
    """What an output tells the reading half of its connection."""

    def pause_for_backlog(self) -> None:
        """More waits for the peer than it may."""

    def progressed(self) -> None:
        """The peer took something."""

    def drained(self) -> None:
        """The peer took all there was."""


class NoReadControl:
    """The read_control of an output whose connection is gone (so that neither keeps the other alive)."""

    def pause_for_backlog(self) -> None:
        pass

    progressed = drained = pause_for_backlog
