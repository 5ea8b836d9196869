"""The type of a message by its properties, with the names of the broker's metrics, of spans and of traces."""

from collections.abc import Mapping
from typing import Final

from skylarkmq.protocol.message import PropertyName

_TIMERS: Final = (PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS)


def message_type(properties: Mapping[str, str]) -> str:
    """Return the type: normal, fifo, delay or transaction."""
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return "transaction"
    if PropertyName.SHARDING_KEY in properties:
        return "fifo"
    if PropertyName.DELAY in properties or any(name in properties for name in _TIMERS):
        return "delay"
    return "normal"
