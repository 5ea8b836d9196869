"""The message types of the metrics: transaction, fifo, delay, or normal.

The type depends on the property names of a stored message, checked in this order. A deferred message counts once when
it is deferred and once when it is delivered. Source: docs/reference/metrics.md.
"""

from typing import Final

TRANSACTION: Final = "transaction"
FIFO: Final = "fifo"
DELAY: Final = "delay"

_TRUE: Final = b"true"
_TRANSACTION_NAME: Final = b"TRAN_MSG\x01"
_TYPES: Final = tuple(
    (name, b"\x02" + name, kind)
    for name, kind in (
        (b"__SHARDINGKEY\x01", FIFO),
        (b"DELAY\x01", DELAY),
        (b"TIMER_DELAY_SEC\x01", DELAY),
        (b"TIMER_DELAY_MS\x01", DELAY),
        (b"TIMER_DELIVER_MS\x01", DELAY),
    )
)
"""The bytes at which a property begins, as the first one and after another one, and its message type."""


def special_type(properties: bytes) -> str | None:
    """Return the message type of a stored message; None for a normal one."""
    if _TRANSACTION_NAME in properties and _value(properties, _TRANSACTION_NAME).lower() == _TRUE:
        return TRANSACTION
    for first, after_another, kind in _TYPES:
        if first in properties and (after_another in properties or properties.startswith(first)):
            return kind
    return None


def _value(properties: bytes, name: bytes) -> bytes:
    after = (b"\x02" + properties).rpartition(b"\x02" + name)
    return after[2].partition(b"\x02")[0] if after[1] else b""
