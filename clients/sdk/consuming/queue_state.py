"""The state of one queue that is assigned to this consumer, and the changes that are allowed.

    adopt -> ASSIGNED --READ--> READING <--PAUSE, RESUME--> PAUSED        any of these --LEAVE--> LEAVING
               ^ PAUSE, RESUME                                 ^
               v                                               |          LEAVING --RELEASE--> RELEASED
             ASSIGNED_PAUSED ------------READ------------------+

Only READING allows pulls. A seek, or a reset of the offset by a broker, replaces the puller of a queue and keeps the
state. `Assignment.change` is the one place that changes a state. Two conditions are not states of the queue: whether
its lock is valid now (clients/sdk/consuming/queue_locks.py), and whether its puller waits for capacity.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from skylarkmq.protocol.bodies.message_queue import MessageQueue


class QueueState(Enum):
    """What this consumer does with the queue."""

    ASSIGNED = "assigned"
    """The application's `on_assigned` runs: nothing is pulled before it has ended."""
    ASSIGNED_PAUSED = "assigned and paused"
    """The same, and the application has paused the queue in the meantime."""
    READING = "reading"
    """The puller pulls, as far as the limits allow."""
    PAUSED = "paused"
    """The application has paused the queue. Messages that were received are still delivered."""
    LEAVING = "leaving"
    """The queue is released: no pulls; a running orderly handler ends, and the offset is committed."""
    RELEASED = "released"
    """The queue belongs to its next owner. This state is final."""

    @property
    def is_owned(self) -> bool:
        """Whether the queue counts as read by this consumer."""
        return self is not QueueState.LEAVING and self is not QueueState.RELEASED


class QueueEvent(Enum):
    """A cause of a change."""

    READ = auto()
    """The application's `on_assigned` has ended."""
    PAUSE = auto()
    """The application pauses the queue."""
    RESUME = auto()
    """The application resumes the queue."""
    LEAVE = auto()
    """The queue is revoked, given up, or its lock is lost."""
    RELEASE = auto()
    """The release is complete."""


TRANSITIONS: Final[Mapping[QueueState, Mapping[QueueEvent, QueueState]]] = {
    QueueState.ASSIGNED: {
        QueueEvent.READ: QueueState.READING,
        QueueEvent.PAUSE: QueueState.ASSIGNED_PAUSED,
        QueueEvent.RESUME: QueueState.ASSIGNED,
        QueueEvent.LEAVE: QueueState.LEAVING,
    },
    QueueState.ASSIGNED_PAUSED: {
        QueueEvent.READ: QueueState.PAUSED,
        QueueEvent.PAUSE: QueueState.ASSIGNED_PAUSED,
        QueueEvent.RESUME: QueueState.ASSIGNED,
        QueueEvent.LEAVE: QueueState.LEAVING,
    },
    QueueState.READING: {
        QueueEvent.READ: QueueState.READING,
        QueueEvent.PAUSE: QueueState.PAUSED,
        QueueEvent.RESUME: QueueState.READING,
        QueueEvent.LEAVE: QueueState.LEAVING,
    },
    QueueState.PAUSED: {
        QueueEvent.READ: QueueState.PAUSED,
        QueueEvent.PAUSE: QueueState.PAUSED,
        QueueEvent.RESUME: QueueState.READING,
        QueueEvent.LEAVE: QueueState.LEAVING,
    },
    QueueState.LEAVING: {QueueEvent.RELEASE: QueueState.RELEASED},
    QueueState.RELEASED: {},
}
"""The state after each event that a state allows. READ is allowed while a queue is read: `PullConsumer.assign` may
adopt a queue while a callback runs."""


class InvalidChange(RuntimeError):
    """An event that the state of the queue does not allow: a defect of the SDK."""


class Assignment:
    """A queue for as long as it is assigned to this consumer. `on_change` is called after each change."""

    __slots__ = ("on_change", "queue", "state")

    def __init__(self, queue: MessageQueue, state: QueueState = QueueState.READING) -> None:
        self.queue = queue
        self.state = state
        self.on_change: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Assignment {self.queue} {self.state.value}>"

    @property
    def may_pull(self) -> bool:
        """Whether messages may be pulled, as far as the limits allow."""
        return self.state is QueueState.READING

    def change(self, event: QueueEvent) -> None:
        """Enter the state that follows `event`. InvalidChange if the state does not allow it."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise InvalidChange(f"{self.queue} is {self.state.value}: {event.name} is not allowed")
        self.state = following
        self.on_change()
