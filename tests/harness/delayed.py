"""Delayed messages for tests: how they lie in the store, and levels of short delays."""

from typing import Any, Final

from skylarkmq.broker.delivery.delay.level import LATENESS_BOUNDS_S, DelayLevel
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.histogram import Histogram
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import encode_properties
from tests.harness.stores import Opened, message

DELAYS_MS: Final = (1_000, 5_000, 10_000)


def delayed(body: bytes, level: int = 1, topic: str = "T", queue_id: int = 0, tag: str = "", **fields: Any) -> Append:
    """A message on its way to `topic`, as the deferral leaves it."""
    properties = {"TAGS": tag or None, "DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
    encoded = encode_properties(properties).encode()
    return message(body, SystemTopic.SCHEDULE, level - 1, properties=fields.pop("properties", encoded), **fields)


def offsets_of(it: Opened) -> DelayOffsetTable:
    """An empty table, by the store's clock."""
    return DelayOffsetTable(10_000, it.clock)


def level_of(
    it: Opened, offsets: DelayOffsetTable | None = None, number: int = 1, delay_ms: int | None = DELAYS_MS[0]
) -> DelayLevel:
    """A level of the store."""
    return DelayLevel(number, delay_ms, it.store, offsets or offsets_of(it), Histogram(LATENESS_BOUNDS_S))
