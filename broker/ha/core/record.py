"""The record of a group in the store of decisions: which node leads, and which stores have all committed bytes."""

from collections.abc import Mapping
from typing import Final

import msgspec

from skylarkmq.broker.ha.core.messages import Promise

FORMAT: Final = 1
"""The newest format of links and logs that this version reads."""


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """A node of the group: the id of its store, and the addresses (`host:port`) for clients and for replication."""

    store_id: str
    address: str = ""
    ha: str = ""


class GroupRecord(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The value of one key, as JSON.

    `leader` is the name of a node, empty after a resignation. `in_sync` has ids of stores, sorted. `min` is the number
    of synced copies, the leader's included, without which nothing is committed. `acks`: "all" if a message is
    acknowledged once it is committed, "leader" if it is once the leader has synced it, so that a fail-over may lose it.
    `nonce` differs in each swap: it tells apart two writers of equal records.
    """

    epoch: Promise
    leader: str
    in_sync: tuple[str, ...]
    members: dict[str, Member]
    min: int
    acks: str = "all"
    format: int = FORMAT
    nonce: str = ""

    def with_set(self, in_sync: frozenset[str], members: Mapping[str, Member] | None = None) -> "GroupRecord":
        """Return the record with another set of copies, and with these members added or replaced."""
        changed = {**self.members, **(members or {})}
        return msgspec.structs.replace(self, in_sync=tuple(sorted(in_sync)), members=changed)

    def with_leader(self, epoch: int, leader: str, in_sync: frozenset[str]) -> "GroupRecord":
        """Return the record of a new term."""
        return msgspec.structs.replace(self.with_set(in_sync), epoch=epoch, leader=leader)

    def others_in_sync(self, store_id: str) -> list[str]:
        """Return the names of the members, other than this store's, whose stores are in the set."""
        in_sync = set(self.in_sync) - {store_id}
        return [name for name, member in sorted(self.members.items()) if member.store_id in in_sync]


def encode(record: GroupRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.encode(record, order="sorted")


def decode(value: bytes) -> GroupRecord:
    """Return the record of this JSON. Raises ValueError if it has another shape."""
    return _decode(value)


_decode: Final = msgspec.json.Decoder(GroupRecord).decode
