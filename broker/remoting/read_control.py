"""What the writing half of a connection tells the reading half."""

from typing import Protocol


class Reader(Protocol):
    """What an output tells the reading half of its connection."""

    def behind(self) -> None:
        """More waits for the peer than it may."""

    def progressed(self) -> None:
        """The peer took something."""

    def drained(self) -> None:
        """The peer took all there was."""


class Nobody:
    """The reader of an output whose connection is gone (so that neither keeps the other alive)."""

    def behind(self) -> None:
        pass

    progressed = drained = behind
