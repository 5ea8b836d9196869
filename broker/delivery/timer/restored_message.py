"""From a message in the timer topic to the delivered message, or to the one that continues to wait.

Everything that was sent is kept, as with delay levels (broker/delivery/delay/restored_message.py). Two properties are
added: TIMER_ENQUEUE_MS, when the message was put on the wheel, and TIMER_DEQUEUE_MS, when it left the wheel. A rolled
message stays in the timer topic and gets TIMER_ROLL_TIMES. Values from earlier rolls are replaced.
Source: docs/reference/wire.md, "Timer messages".
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
    """Turn a restored message into the one that consumers get."""
    append.properties = _with_times(append.properties, enqueue_ms, now_ms)


def roll(append: Append, enqueue_ms: int, now_ms: int) -> None:
    """Turn a restored message into one that passes through the timer topic again."""
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
