"""What kind of message it is, by its properties: as the broker's metrics, spans and traces name it."""

from collections.abc import Mapping
from typing import Final

from skylarkmq.protocol.message import PropertyName

_TIMERS: Final = (PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS)


def message_type(properties: Mapping[str, str]) -> str:
    """normal, fifo, delay or transaction."""
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return "transaction"
    if PropertyName.SHARDING_KEY in properties:
        return "fifo"
    if PropertyName.DELAY in properties or any(name in properties for name in _TIMERS):
        return "delay"
    return "normal"
