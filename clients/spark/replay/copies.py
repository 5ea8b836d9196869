"""The properties that the copy of a message keeps, and the mark that names its origin.

A copy has the body, the flag and the compression of the old message, and all of its properties except those that make a
broker or a client act (`copied_properties.py`). So keys, tags, sharding key and unique id (UNIQ_KEY) are the same as in
the old message, and a copy is neither delayed nor half of a transaction nor a retry. Its born time and host, store time
and store host are new.

The mark, the property REPLAYED_FROM, is `<replay id>:<topic>:<broker>:<queue>:<offset>` of the old message. A replay
that was killed reads the marks at the ends of its target queues, and so finds the copies that arrived.

Source: docs/reference/wire.md, "Properties".
"""

import re
from typing import Final, NamedTuple

from skylarkmq.clients.sdk.messages.copied_properties import DROPPED
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.protocol.message import ENTRY_END, NAME_END

MARK: Final = "REPLAYED_FROM"

_DROPPED: Final = frozenset(name.encode() for name in (*DROPPED, MARK))
_NAME_END: Final = NAME_END.encode()
_END: Final = ENTRY_END.encode()
_PLACE: Final = re.compile(r"(.*?):(.*):([0-9]{1,10}):([0-9]{1,19})", re.DOTALL)
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1


class Origin(NamedTuple):
    """The place of an old message."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


def mark_prefix(replay_id: str, topic: str, broker_name: str, queue_id: int) -> bytes:
    """Return the entry of the mark up to the offset, for messages of one queue.

    Raises ReplayFailed for names that would add properties of their own. No broker stores such names, but a Parquet
    file may contain them.
    """
    if any(separator in name for separator in (NAME_END, ENTRY_END) for name in (topic, broker_name)):
        raise ReplayFailed(f"the source has a message of topic {topic!r}, broker {broker_name!r}: no valid names")
    return f"{MARK}{NAME_END}{replay_id}:{topic}:{broker_name}:{queue_id}:".encode()


def kept_properties(stored: bytes, prefix: bytes, offset: int) -> bytes:
    """Return the property string of a copy. `stored`: the property string of the old message; `prefix`: from
    `mark_prefix`."""
    entries = [entry for entry in stored.split(_END) if entry and entry.partition(_NAME_END)[0] not in _DROPPED]
    entries += (b"%b%d" % (prefix, offset), b"")
    return _END.join(entries)


def origin_of(mark: str | None, replay_id: str) -> Origin | None:
    """Return the place that a mark names; None if it is missing, damaged, or of another replay."""
    found, _, place = (mark or "").partition(":")
    parts = _PLACE.fullmatch(place)
    if found != replay_id or parts is None:
        return None
    queue_id, offset = int(parts[3]), int(parts[4])
    return Origin(parts[1], parts[2], queue_id, offset) if queue_id <= _INT_MAX and offset <= _LONG_MAX else None
