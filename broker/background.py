"""What a broker delivers by itself: messages that do not go straight to their topic, and those that it makes.

    diversion   rewrites such messages on their way into the log
    puts        stores messages of the broker's own
    delay       delivers from the queues of delay levels

The parts are wired here; `broker/daemon.py` starts them behind the tables and before requests are let in, and stops
them behind the last request.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.config import DaemonConfig
from broker.delivery.arrivals import Arrivals
from broker.delivery.delay.delivery import DelayDelivery
from broker.delivery.delay.offsets import DelayOffsetTable
from broker.delivery.diversion import Diversion
from broker.delivery.internal_puts import InternalPuts
from broker.metadata.saver import Table
from broker.store.config import parse_delay_levels
from broker.store.message_store import MessageStore
from protocol.bodies.offsets import DelayOffsets
from protocol.codes import SystemTopic

DELAY_OFFSETS_FILE: Final = "delayOffset.json"

Kept = tuple[Table, str, Callable[[bytes], object]]
"""A table, the name of its file, and what refuses a damaged one."""


class Background:
    """These parts of one broker. `now_ms` gives Unix time."""

    def __init__(
        self, config: DaemonConfig, store: MessageStore, arrivals: Arrivals, now_ms: Callable[[], int]
    ) -> None:
        delays_ms = parse_delay_levels(config.store.message_delay_level)
        self._store = store
        self.puts = InternalPuts(store)
        self.diversion = Diversion(delays_ms)
        self.delay_offsets = DelayOffsetTable(config.broker.flush_delay_offset_interval, now_ms)
        self.delay = DelayDelivery(store, self.delay_offsets, delays_ms, now_ms)
        arrivals.watch(SystemTopic.SCHEDULE, self.delay.arrived)

    def __repr__(self) -> str:
        return f"<Background {self.delay!r}>"

    def kept(self) -> list[Kept]:
        """Tables to be loaded before the start, and saved at their wish."""
        return [(self.delay_offsets, DELAY_OFFSETS_FILE, DelayOffsets.decode)]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to deliver."""
        self.delay.start(loop)

    async def stop(self) -> None:
        """Deliver nothing more; what was delivered is in the tables."""
        await self.delay.stop()

    def step(self, now_ms: int) -> None:
        """Have tables saved that have changed."""
        self.delay_offsets.step(now_ms, self._store.flushed_offset)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self.diversion.forget_topic(topic)

    def runtime(self) -> dict[str, object]:
        """What the runtime information says of these parts."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end}"
            for level, (offset, end) in self.delay.progress().items()
        }
