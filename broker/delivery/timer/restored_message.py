"""From a message that waits in the timer topic to what becomes of it: the delivered one, or one that waits on.

Everything that was sent is kept, as with delay levels (broker/delivery/delay/restored_message.py). Added are
TIMER_ENQUEUE_MS, when it was put on the wheel, and TIMER_DEQUEUE_MS, when it left; a message that goes round once more
has TIMER_ROLL_TIMES and stays in the timer topic. What earlier rounds have added is replaced.
Source: docs/formats.md, "Timer messages".
"""

from typing import Final

from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.decimals import INT32_MAX, decimal
from skylarkmq.protocol.message import decode_properties, encode_properties
from skylarkmq.protocol.timers import DEQUEUE_MS, ENQUEUE_MS, ROLL_TIMES

_ADDED: Final = DEQUEUE_MS.encode()
_ENTRY_END: Final = b"\x02"


def deliver(append: Append, enqueue_ms: int, now_ms: int) -> None:
    """Make of a message that was restored what its consumers get."""
    append.properties = _with_times(append.properties, enqueue_ms, now_ms)


def roll(append: Append, enqueue_ms: int, now_ms: int) -> None:
    """Make of a message that was restored what waits on, once more through the timer topic."""
    append.topic, append.queue_id = SystemTopic.TIMER, 0
    properties = decode_properties(append.properties.decode("utf-8", "replace"))
    times = decimal(properties.get(ROLL_TIMES), 0, INT32_MAX - 1) or 0
    properties |= {ENQUEUE_MS: str(enqueue_ms), DEQUEUE_MS: str(now_ms), ROLL_TIMES: str(times + 1)}
    append.properties = encode_properties(properties).encode("utf-8", "replace")


def _with_times(properties: bytes, enqueue_ms: int, now_ms: int) -> bytes:
    if _ADDED in properties:
        known = decode_properties(properties.decode("utf-8", "replace"))
        known |= {ENQUEUE_MS: str(enqueue_ms), DEQUEUE_MS: str(now_ms)}
        return encode_properties(known).encode("utf-8", "replace")
    end = b"" if properties.endswith(_ENTRY_END) else _ENTRY_END
    return b"%b%bTIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (properties, end, enqueue_ms, now_ms)
