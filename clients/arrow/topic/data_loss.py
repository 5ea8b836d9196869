"""Lost messages: ranges that were deleted before the query read them.

Retention may delete messages that a query has not read yet, and a topic may be deleted or recreated. With
`failOnDataLoss`, the query fails with an error that contains the range. Without it, the range is logged, and reading
continues after it.
"""

import logging

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)


class DataLoss(Exception):
    """A range of messages was lost, and failOnDataLoss is set."""


class Loss(msgspec.Struct, frozen=True):
    """Lost offsets [begin, end) of a queue, with the reason; `end` None: the number of messages is unknown."""

    queue: MessageQueue
    begin: int
    end: int | None
    why: str

    def __str__(self) -> str:
        upto = "on" if self.end is None else f"to {self.end} (excluded)"
        return f"{self.queue} from offset {self.begin} {upto}: {self.why}"


class LossRule:
    """Handles losses. `fails`: the option failOnDataLoss."""

    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self._recorded: list[Loss] = []

    def __repr__(self) -> str:
        return f"<LossRule fails={self._fails} noted={len(self._recorded)}>"

    def record(self, loss: Loss) -> None:
        """Raise DataLoss if losses are errors; else record it for `log_losses`, which merges adjacent ranges."""
        if self._fails:
            raise DataLoss(
                f"messages were lost: {loss}. To continue without them, set failOnDataLoss to false; the range is then "
                "skipped and logged."
            )
        self._recorded.append(loss)

    def log_losses(self) -> list[Loss]:
        """Log the losses recorded since the last call, and return them."""
        losses = merged(self._recorded)
        self._recorded = []
        for loss in losses:
            log.warning(
                "messages lost, continuing after them queue=%s begin=%d end=%s reason=%s",
                loss.queue,
                loss.begin,
                loss.end,
                loss.why,
            )
        return losses


def merged(losses: list[Loss]) -> list[Loss]:
    """Return the same ranges, with adjacent ones merged."""
    found: list[Loss] = []
    for loss in sorted(losses, key=lambda loss: (loss.queue, loss.begin)):
        last = found[-1] if found else None
        if last is not None and (last.queue, last.end, last.why) == (loss.queue, loss.begin, loss.why):
            found[-1] = Loss(loss.queue, last.begin, loss.end, loss.why)
        else:
            found.append(loss)
    return found
