"""Of which kind a stored message is, as it is counted: transaction, fifo, delay, or the normal one.

Told by names among its properties, in this order; what is diverted counts once where it waits and once where it is
delivered. Source: docs/metrics.md.
"""

import re
from typing import Final

TRANSACTION: Final = "transaction"
FIFO: Final = "fifo"
DELAY: Final = "delay"

_KINDS: Final = (
    (TRANSACTION, re.compile(rb"(?:\A|\x02)TRAN_MSG\x01(?i:true)(?:\x02|\Z)").search),
    (FIFO, re.compile(rb"(?:\A|\x02)__SHARDINGKEY\x01").search),
    (DELAY, re.compile(rb"(?:\A|\x02)(?:DELAY|TIMER_DELAY_SEC|TIMER_DELAY_MS|TIMER_DELIVER_MS)\x01").search),
)


def special_kind(properties: bytes) -> str | None:
    """The kind of a stored message; None for a normal one."""
    for kind, found in _KINDS:
        if found(properties):
            return kind
    return None
