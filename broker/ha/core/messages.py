"""The messages of a link between two nodes.

A follower connects to the leader and sends HELLO. The leader responds with WELCOME, and sends BEAT from then on. Once
the follower's log ends where WELCOME requires, the follower sends its first ACK, and the leader begins to send DATA.
The follower responds to BEAT, and to each sync of its log, with ACK. Each side may send REFUSED and close the link.
"""

from typing import Annotated, TypeAlias

import msgspec

from skylarkmq.broker.ha.core.epochs import EpochHistory

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""An epoch or an offset, as a peer may send it."""
Promise: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 61)]
"""An epoch that a node has promised. The limit is below that of Number: other nodes can read the terms that follow."""
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000)]


class Hello(msgspec.Struct, frozen=True):
    """`start`: first offset of the follower's log. `end`: its end, all synced. `segment_bytes`: the size of the log's
    segments, which end with blanks and are equal in a group; 0 if the owner has none."""

    group: Text
    node: Text
    store_id: Text
    promised: Promise
    epochs: EpochHistory
    start: Number
    end: Number
    format: Number
    segment_bytes: Number = 0


class Welcome(msgspec.Struct, frozen=True):
    """`start`: data begin there; the follower truncates its log to it first. `epochs`: the history up to there."""

    epoch: Number
    start: Number
    committed: Number
    epochs: EpochHistory


class Refused(msgspec.Struct, frozen=True):
    """`epoch`: the highest epoch that the sender knows. `lost`: the follower's store lost acknowledged bytes."""

    epoch: Number
    reason: Text
    lost: bool = False


class Data(msgspec.Struct, frozen=True):
    """Bytes of the leader's log from `offset` on. A view is valid until the step that handles the message ends."""

    epoch: Number
    offset: int
    committed: Number
    payload: bytes | memoryview


class Beat(msgspec.Struct, frozen=True):
    """Sent when there are no data, so that the follower learns the committed offset and the leader is heard."""

    epoch: Number
    committed: Number


class Ack(msgspec.Struct, frozen=True):
    """`written` and `synced`: ends of the follower's log in the page cache and on its disk."""

    epoch: Number
    written: int
    synced: int


Message: TypeAlias = Hello | Welcome | Refused | Data | Beat | Ack
