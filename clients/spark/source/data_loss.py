"""Messages that were to be read and are not there any more: what is said, and whether it ends the query.

Retention may delete what a query has not read yet, and a topic may be deleted or made again under it. With
`failOnDataLoss` that is an error which names the range; without it the range is logged, and reading goes on behind it.
"""

import logging

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)


class DataLoss(Exception):
    """A range that cannot be read any more."""


class Loss(msgspec.Struct, frozen=True):
    """Offsets [begin, end) of a queue, and what became of them; `end` None: nobody knows how many there were."""

    queue: MessageQueue
    begin: int
    end: int | None
    why: str

    def __str__(self) -> str:
        upto = "on" if self.end is None else f"to {self.end} (excluded)"
        return f"{self.queue} from offset {self.begin} {upto}: {self.why}"


class LossRule:
    """What happens when something is lost. `fails`: the option failOnDataLoss."""

    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self._noted: list[Loss] = []

    def __repr__(self) -> str:
        return f"<LossRule fails={self._fails} noted={len(self._noted)}>"

    def note(self, loss: Loss) -> None:
        """DataLoss if it ends the query; else it is logged by `tell`, neighbours as one range."""
        if self._fails:
            raise DataLoss(
                f"messages were lost: {loss}. To go on without them set failOnDataLoss to false; the range is then "
                "left out and logged."
            )
        self._noted.append(loss)

    def tell(self) -> list[Loss]:
        """Log what was noted since the last time, and return it."""
        told = merged(self._noted)
        self._noted = []
        for loss in told:
            log.warning(
                "messages lost, going on behind them queue=%s begin=%d end=%s reason=%s",
                loss.queue,
                loss.begin,
                loss.end,
                loss.why,
            )
        return told


def merged(losses: list[Loss]) -> list[Loss]:
    """The same ranges, those that touch as one."""
    found: list[Loss] = []
    for loss in sorted(losses, key=lambda loss: (loss.queue, loss.begin)):
        last = found[-1] if found else None
        if last is not None and (last.queue, last.end, last.why) == (loss.queue, loss.begin, loss.why):
            found[-1] = Loss(loss.queue, last.begin, loss.end, loss.why)
        else:
            found.append(loss)
    return found
