"""The messages of a link between two nodes.

A follower connects to the leader and sends HELLO. The leader responds with WELCOME, then sends DATA and BEAT, to which
the follower responds with ACK. Each side may send REFUSED and close the link.
"""

from typing import TypeAlias

import msgspec

from skylarkmq.broker.ha.core.epochs import EpochHistory


class Hello(msgspec.Struct, frozen=True):
    """`start`: first offset of the follower's log. `end`: its end, all synced."""

    group: str
    node: str
    store_id: str
    promised: int
    epochs: EpochHistory
    start: int
    end: int
    format: int


class Welcome(msgspec.Struct, frozen=True):
    """`start`: data begin there; the follower truncates its log to it first."""

    epoch: int
    start: int
    committed: int


class Refused(msgspec.Struct, frozen=True):
    """`epoch`: the highest epoch that the sender knows. `lost`: the follower's store lost acknowledged bytes."""

    epoch: int
    reason: str
    lost: bool = False


class Data(msgspec.Struct, frozen=True):
    """Bytes of the leader's log from `offset` on."""

    epoch: int
    offset: int
    committed: int
    payload: bytes


class Beat(msgspec.Struct, frozen=True):
    """Sent when there are no data, so that the follower learns the committed offset and the leader is heard."""

    epoch: int
    committed: int


class Ack(msgspec.Struct, frozen=True):
    """`written` and `synced`: ends of the follower's log in the page cache and on its disk."""

    epoch: int
    written: int
    synced: int


Message: TypeAlias = Hello | Welcome | Refused | Data | Beat | Ack
