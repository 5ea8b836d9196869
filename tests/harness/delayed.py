"""Delayed messages for tests, as they are stored, and levels with short delays."""

from typing import Any, Final

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.level import LATENESS_BOUNDS_S, DelayLevel
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import encode_properties
from tests.harness.stores import Opened, message

DELAYS_MS: Final = (1_000, 5_000, 10_000)


def delayed(body: bytes, level: int = 1, topic: str = "T", queue_id: int = 0, tag: str = "", **fields: Any) -> Append:
    """Return a message for `topic` as Deferral rewrites it."""
    properties = {"TAGS": tag or None, "DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
    encoded = encode_properties(properties).encode()
    return message(body, SystemTopic.SCHEDULE, level - 1, properties=fields.pop("properties", encoded), **fields)


def offsets_of(it: Opened) -> DelayOffsetTable:
    """Return an empty table that uses the store's clock."""
    return DelayOffsetTable(10_000, it.clock)


def level_of(
    it: Opened, offsets: DelayOffsetTable | None = None, number: int = 1, delay_ms: int | None = DELAYS_MS[0]
) -> DelayLevel:
    """Return a delay level of the store."""
    return DelayLevel(number, delay_ms, it.store, offsets or offsets_of(it), Histogram(LATENESS_BOUNDS_S))
