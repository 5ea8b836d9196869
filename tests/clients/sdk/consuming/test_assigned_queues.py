"""The queues of one consumer: their states while they are adopted, sought, paused, moved and released."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from skylarkmq.clients.sdk.consuming.assigned_queues import AssignedQueues
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.queue_state import Assignment, InvalidChange, QueueEvent, QueueState
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.peer import until

QUEUE = MessageQueue("T", "a", 0)
SUBSCRIPTION = SubscriptionData("T", "*")


class FakePuller:
    """A puller that reads nothing."""

    def __init__(self, assignment: Assignment, subscription: SubscriptionData, start_at: int | None) -> None:
        self.assignment, self.subscription, self.queue = assignment, subscription, assignment.queue
        self.tracker = OffsetTracker(start_at or 0, queue=self.queue)
        self.committed: int | None = None

    async def run(self, _pause_s: float) -> None:
        await asyncio.Event().wait()

    def drop(self) -> None:
        self.tracker.dropped = True

    def commit_offset(self) -> int | None:
        return None if self.tracker.dropped else self.tracker.commit_offset()


class Offsets:
    """Commits end when the test lets them."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    async def committed_offset(self, _queue: MessageQueue) -> int | None:
        return None

    async def commit(self, _queue: MessageQueue, offset: int) -> None:
        await self.may_commit.wait()
        self.committed.append(offset)


async def settled(_tracker: OffsetTracker) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def assigned_queues() -> AsyncIterator[tuple[AssignedQueues, Offsets]]:
    offsets = Offsets()
    make: Any = FakePuller
    assigned = AssignedQueues("g", offsets, make, settled)
    try:
        yield assigned, offsets
    finally:
        await assigned.stop_reading()


def state_of(assigned: AssignedQueues) -> QueueState:
    puller = assigned.puller(QUEUE)
    assert puller is not None
    return puller.assignment.state


def change(assigned: AssignedQueues, event: QueueEvent) -> None:
    puller = assigned.puller(QUEUE)
    assert puller is not None
    puller.assignment.change(event)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], QueueState.READING),
        ([QueueEvent.PAUSE], QueueState.PAUSED),
        ([QueueEvent.PAUSE, QueueEvent.RESUME], QueueState.READING),
    ],
)
async def test_a_pause_in_the_callback_lasts_after_it(events: list[QueueEvent], expected: QueueState) -> None:
    """A queue that was just assigned is pulled, or paused, when the callback has ended."""
    async with assigned_queues() as (assigned, _):
        assigned.adopt(QUEUE, SUBSCRIPTION, state=QueueState.ASSIGNED)
        for event in events:
            change(assigned, event)
        assert state_of(assigned) is not QueueState.READING
        assigned.let_pull([QUEUE])
        assert state_of(assigned) is expected


@pytest.mark.parametrize("state", [state for state in QueueState if state.is_owned])
async def test_a_seek_keeps_the_state(state: QueueState) -> None:
    """The puller is another one, and its assignment the same."""
    async with assigned_queues() as (assigned, _):
        assigned.adopt(QUEUE, SUBSCRIPTION, state=state)
        former = assigned.puller(QUEUE)
        assigned.adopt(QUEUE, SUBSCRIPTION, 7)
        puller = assigned.puller(QUEUE)
        assert former is not None
        assert puller is not former
        assert puller is not None
        assert puller.assignment is former.assignment
        assert state_of(assigned) is state
        assert former.tracker is not None
        assert former.tracker.dropped


async def test_a_reset_of_the_offset_keeps_the_state() -> None:
    """A paused queue stays paused, and the offset is committed."""
    async with assigned_queues() as (assigned, offsets):
        assigned.adopt(QUEUE, SUBSCRIPTION)
        change(assigned, QueueEvent.PAUSE)
        await assigned.move(QUEUE, 9)
        assert (state_of(assigned), offsets.committed) == (QueueState.PAUSED, [9])


async def test_a_queue_that_leaves_is_not_read_and_not_free() -> None:
    """It is LEAVING until its offset is committed; then it may be adopted again."""
    async with assigned_queues() as (assigned, offsets):
        assigned.adopt(QUEUE, SUBSCRIPTION, 5)
        puller = assigned.puller(QUEUE)
        assert puller is not None
        offsets.may_commit.clear()
        release = asyncio.ensure_future(assigned.release([QUEUE]))
        await until(lambda: puller.assignment.state is QueueState.LEAVING)
        assert (assigned.queues(), len(assigned), QUEUE in assigned, assigned.puller(QUEUE)) == ((), 0, True, None)
        assert not assigned.is_behind(QUEUE, 5)
        with pytest.raises(InvalidChange, match="leaving"):
            assigned.adopt(QUEUE, SUBSCRIPTION)
        offsets.may_commit.set()
        await release
        assert (puller.assignment.state, offsets.committed) == (QueueState.RELEASED, [5])
        assert QUEUE not in assigned
        assigned.adopt(QUEUE, SUBSCRIPTION)
        assert (state_of(assigned), len(assigned)) == (QueueState.READING, 1)


async def test_a_release_that_is_canceled_releases_the_queue() -> None:
    """The queue is free, and its offset is not committed."""
    async with assigned_queues() as (assigned, offsets):
        assigned.adopt(QUEUE, SUBSCRIPTION, 5)
        puller = assigned.puller(QUEUE)
        assert puller is not None
        offsets.may_commit.clear()
        release = asyncio.ensure_future(assigned.release([QUEUE]))
        await until(lambda: puller.assignment.state is QueueState.LEAVING)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)
        assert (puller.assignment.state, QUEUE in assigned, offsets.committed) == (QueueState.RELEASED, False, [])
