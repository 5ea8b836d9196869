"""Messages of an orderly consumer: a lane for each queue, and in each lane one message at a time.

    reader -> put -> lane of its queue -> take: a lane with nobody in it -> its first message -> give_back

A worker has a lane for one message and gives it back; then the lane stands behind the others that have something to
do. A lane may be given back with a pause, when its message shall come again. `settle` waits until nobody is in a lane,
and keeps everybody out from then on: whoever owns the queue next must not be overtaken by what still runs here.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from skylarkmq.clients.consuming.message_buffer import Delivery
from skylarkmq.clients.consuming.offset_tracker import Progress


class Lane(msgspec.Struct, eq=False):
    """One queue's messages; `in_line`: it waits to be taken, or is taken, or pauses."""

    progress: Progress
    deliveries: deque[Delivery]
    in_line: bool = False
    is_taken: bool = False
    settled: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class Lanes:
    """The lanes of one consumer, first come, first served."""

    def __init__(self) -> None:
        self._lanes: dict[Progress, Lane] = {}
        self._line: asyncio.Queue[Lane | None] = asyncio.Queue()
        self._waiting = 0
        self.closed = False

    def __repr__(self) -> str:
        return f"<Lanes {len(self._lanes)} lanes, {self._waiting} messages waiting>"

    def __len__(self) -> int:
        """Messages that wait."""
        return self._waiting

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Add messages at the ends of their lanes."""
        for delivery in deliveries:
            progress = delivery.progress
            if self.closed or progress.dropped:
                continue
            lane = self._lanes.get(progress)
            if lane is None:
                lane = self._lanes[progress] = Lane(progress, deque())
            lane.deliveries.append(delivery)
            self._waiting += 1
            self._line_up(lane)

    async def take(self) -> Lane | None:
        """A lane whose first message is to be worked on, as soon as there is one; None when the lanes are closed."""
        while not self.closed:
            lane = await self._line.get()
            if lane is None:
                break
            lane.in_line = False
            if lane.deliveries and not lane.progress.dropped and lane.progress in self._lanes:
                lane.is_taken = lane.in_line = True
                return lane
            self._forget(lane)
        self._line.put_nowait(None)  # for the next one who asks
        return None

    def finish_first(self, lane: Lane) -> None:
        """The first message of a taken lane is done."""
        self._waiting -= 1
        lane.deliveries.popleft().finish()

    def give_back(self, lane: Lane, pause_s: float = 0.0) -> None:
        """Let the lane be taken again, after a pause."""
        lane.is_taken = lane.in_line = False
        lane.settled.set()
        if self._lanes.get(lane.progress) is not lane:
            self._forget(lane)
        elif pause_s > 0:
            lane.in_line = True
            asyncio.get_running_loop().call_later(pause_s, self._line.put_nowait, lane)
        elif lane.deliveries:
            self._line_up(lane)
        else:
            del self._lanes[lane.progress]

    async def settle(self, progress: Progress) -> None:
        """Wait until nobody works on a message of this queue; nobody will from now on."""
        lane = self._lanes.pop(progress, None)
        if lane is None:
            return
        if lane.is_taken:
            lane.settled.clear()
            await lane.settled.wait()
        self._forget(lane)

    def close(self) -> None:
        """Let nobody take any more."""
        self.closed = True
        self._line.put_nowait(None)

    def _line_up(self, lane: Lane) -> None:
        if not lane.in_line:
            lane.in_line = True
            self._line.put_nowait(lane)

    def _forget(self, lane: Lane) -> None:
        """What waits in a lane that was given up is somebody else's."""
        self._waiting -= len(lane.deliveries)
        lane.deliveries.clear()
        if self._lanes.get(lane.progress) is lane:
            del self._lanes[lane.progress]
