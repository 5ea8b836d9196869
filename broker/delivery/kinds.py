"""Of which kind a stored message is, as it is counted: transaction, fifo, delay, or the normal one.

Told by names among its properties, in this order; what is diverted counts once where it waits and once where it is
delivered. Source: docs/metrics.md.
"""

from typing import Final

TRANSACTION: Final = "transaction"
FIFO: Final = "fifo"
DELAY: Final = "delay"

_TRUE: Final = b"true"
_TRANSACTION_NAME: Final = b"TRAN_MSG\x01"
_FIFO_NAME: Final = b"__SHARDINGKEY\x01"
_DELAY_NAMES: Final = (b"DELAY\x01", b"TIMER_DELAY_SEC\x01", b"TIMER_DELAY_MS\x01", b"TIMER_DELIVER_MS\x01")


def special_kind(properties: bytes) -> str | None:
    """The kind of a stored message; None for a normal one."""
    if _TRANSACTION_NAME in properties and _value(properties, _TRANSACTION_NAME).lower() == _TRUE:
        return TRANSACTION
    if _is_among(properties, _FIFO_NAME):
        return FIFO
    return DELAY if any(_is_among(properties, name) for name in _DELAY_NAMES) else None


def _is_among(properties: bytes, name: bytes) -> bool:
    return b"\x02" + name in properties or properties.startswith(name)


def _value(properties: bytes, name: bytes) -> bytes:
    behind = (b"\x02" + properties).rpartition(b"\x02" + name)
    return behind[2].partition(b"\x02")[0] if behind[1] else b""
