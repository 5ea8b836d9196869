"""Timer messages for tests, as they are stored, and the timers of a small store with a small wheel."""

import asyncio
from pathlib import Path
from typing import Any, Final

from skylarkmq.broker.delivery.timer.admission import TimerConfig
from skylarkmq.broker.delivery.timer.timers import Timers, TimersConfig
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import encode_properties, tags_code
from skylarkmq.protocol.timers import DELETES, OUT_MS
from tests.harness.stores import Clock, Opened, message

WHEEL_SLOTS: Final = 1_024
LOG_BYTES: Final = 1_056  # of a timer log file: 20 units and a blank


def timed(body: bytes, out_ms: int, topic: str = "T", queue_id: int = 0, key: str = "", **fields: Any) -> Append:
    """Return a message for `topic` as Deferral rewrites it, in the slot of `out_ms`."""
    properties = {OUT_MS: str(out_ms), "REAL_TOPIC": topic, "REAL_QID": str(queue_id), "UNIQ_KEY": key or body.hex()}
    properties |= fields.pop("more", {})
    fields.setdefault("tags_code", tags_code(properties.get("TAGS")))
    encoded = encode_properties(properties).encode()
    return message(body, SystemTopic.TIMER, 0, properties=fields.pop("properties", encoded), **fields)


def deletion(out_ms: int, key: str, topic: str = "T") -> Append:
    """Return a message that deletes the message with that unique key, in the same slot."""
    return timed(b"0", out_ms, topic, key=key, more={DELETES: f"{topic}+{key}"})


def stop(it: Opened, timers: Timers) -> None:
    """Stop the timers, and step the store meanwhile, since it has no event loop."""

    async def stopped() -> None:
        task = asyncio.ensure_future(timers.delivery.stop())
        while not task.done():
            it.store.step(it.clock.now_ms)
            await asyncio.sleep(0)
        await task

    asyncio.run(stopped())


def timers_of(it: Opened, disk: Any = None, **fields: Any) -> Timers:
    """Return the timers of an opened store, on its clock, not loaded."""
    return timers_on(it.root, it.store, it.clock, disk or it.disk, **fields)


def timers_on(root: Path, store: MessageStore, clock: Clock, disk: Any, **fields: Any) -> Timers:
    """Return the timers of a store, not loaded."""
    config = TimersConfig(
        root=root,
        admission=fields.pop("admission", TimerConfig()),
        slots=WHEEL_SLOTS,
        log_file_size=fields.pop("log_file_size", LOG_BYTES),
        **fields,
    )
    return Timers(config, store, clock, disk)
