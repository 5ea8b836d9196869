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
_KINDS: Final = tuple(
    (name, b"\x02" + name, kind)
    for name, kind in (
        (b"__SHARDINGKEY\x01", FIFO),
        (b"DELAY\x01", DELAY),
        (b"TIMER_DELAY_SEC\x01", DELAY),
        (b"TIMER_DELAY_MS\x01", DELAY),
        (b"TIMER_DELIVER_MS\x01", DELAY),
    )
)
"""A property's beginning, where it is the first and where it is not, and the kind that it makes."""


def special_kind(properties: bytes) -> str | None:
    """The kind of a stored message; None for a normal one."""
    if _TRANSACTION_NAME in properties and _value(properties, _TRANSACTION_NAME).lower() == _TRUE:
        return TRANSACTION
    for first, behind_another, kind in _KINDS:
        if first in properties and (behind_another in properties or properties.startswith(first)):
            return kind
    return None


def _value(properties: bytes, name: bytes) -> bytes:
    behind = (b"\x02" + properties).rpartition(b"\x02" + name)
    return behind[2].partition(b"\x02")[0] if behind[1] else b""
