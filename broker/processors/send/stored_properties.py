"""From the properties that a producer sent to those that are stored.

The broker adds CLUSTER, and UNIQ_KEY if the producer set none, terminates the last entry, and removes what only a
broker may set (POP_CK). All this works on the encoded text; only the rare message that needs it is decoded to a dict.
Sources: docs/reference/wire.md, "Properties", "Send".
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from skylarkmq.broker.delivery.deferral import DeferralRequest, needs_deferral
from skylarkmq.protocol.message import (
    ENTRY_END,
    NAME_END,
    BatchRecord,
    PropertyName,
    decode_properties,
    encode_properties,
    property_value,
    tags_code,
)

_UNCOMMON: Final = b"DELAY|TIMER_|TRAN_MSG|CLUSTER|POP_CK|WAIT|__SHARDINGKEY"
_SET_BY_BROKER: Final = b"REAL_|TRAN_PREP|TRANSACTION_CHECK"
COMMON_PROPERTIES: Final = re.compile(
    b"(?:KEYS\x01([^\x02]++)\x02|UNIQ_KEY\x01([0-9A-Za-z]{1,64}+)\x02|WAIT\x01(true)\x02|TAGS\x01([^\x02]++)\x02"
    b"|(?!%b|KEYS\x01|UNIQ_KEY\x01|TAGS\x01)[^\x01\x02]+\x01[^\x02]+\x02)*+" % _UNCOMMON
).fullmatch
"""Matches common properties, in any order; the groups are the last KEYS, UNIQ_KEY, WAIT and TAGS.

A group begins only after a name that no other branch matches: CPython 3.11 leaves a wrong span where a branch of a
possessive repeat has begun its group and another branch matches instead (python/cpython#101955).
"""

_COMMON_WITH_DEFERRAL: Final = re.compile(
    b"(?:KEYS\x01([^\x02]++)\x02|UNIQ_KEY\x01([0-9A-Za-z]{1,64}+)\x02|WAIT\x01true\x02|TAGS\x01([^\x02]++)\x02"
    b"|(DELAY|TIMER_DELAY_SEC|TIMER_DELAY_MS|TIMER_DELIVER_MS)\x01([1-9][0-9]{0,14}+)\x02|(TRAN_MSG)\x01true\x02"
    b"|(?!%b|KEYS\x01|UNIQ_KEY\x01|TAGS\x01|%b)[^\x01\x02]+\x01[^\x02]+\x02)*" % (_UNCOMMON, _SET_BY_BROKER)
).fullmatch
"""Matches the same with properties that defer a message; the other groups are the last of them: a name and its number,
or the mark of a half message."""
_DEFERRAL_NAMES: Final = (b"DELAY\x01", b"TIMER_", b"TRAN_MSG")

SPACE: Final = ord(" ")  # testing bytes for an int takes a sixth of the time of testing for a byte string
END: Final = ord(ENTRY_END)
END_BYTES: Final = ENTRY_END.encode()

_INDEXED: Final = {PropertyName.KEYS, PropertyName.TAGS, PropertyName.UNIQ_KEY}  # messages are found by these

Shared: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""A batch's own properties: `(02 name 01, the entry added to a message that lacks it)`; the entry is b"" if adding it
is not enough."""

DeferredProperties: TypeAlias = tuple[bytes, int, list[bytes], DeferralRequest]
"""For a deferred message: the stored properties, the tags code, the index keys, and why it is deferred."""


class StoredProperties(msgspec.Struct, gc=False):
    """The properties to store, and the values that the send path needs."""

    encoded: bytes
    unique_key: str
    tags: str | None
    wait_flush: bool
    deferred: dict[str, str] | None = None  # all properties, if the message is deferred


class PropertyCompletion:
    """Completes property strings for one cluster."""

    __slots__ = ("_cluster", "_cluster_entry", "_new_unique_key", "cluster_entry")

    def __init__(self, cluster: str, new_unique_key: Callable[[], str]) -> None:
        self._cluster = cluster
        self._cluster_entry = encode_properties({PropertyName.CLUSTER: cluster})
        self.cluster_entry = self._cluster_entry.encode("utf-8", "replace")  # ends all properties
        self._new_unique_key = new_unique_key

    def __repr__(self) -> str:
        return f"<PropertyCompletion {self._cluster_entry!r}>"

    def deferred(self, sent: str) -> DeferredProperties | None:
        """Return the stored form of properties that are common but for exactly one deferral.

        Returns None for any other properties, and if the unique key is missing.
        """
        own = sent.encode("utf-8", "replace")
        if own and own[-1] != END:
            own += END_BYTES
        found = _COMMON_WITH_DEFERRAL(own)
        if found is None or sum(map(own.count, _DEFERRAL_NAMES)) != 1:
            return None
        keys, unique_key, tags, name, number, half = found.groups()
        if unique_key is None or (name is None and half is None):
            return None
        prepared = PropertyName.TRANSACTION_PREPARED
        request = DeferralRequest(prepared, 1) if name is None else DeferralRequest(name.decode(), int(number))
        return own + self.cluster_entry, tags_code_of(tags), keys_of(unique_key, keys), request

    def shared(self, batch_level: dict[str, str]) -> Shared | None:
        """Return the entries that a batch's own properties add to its messages; None if they are not common."""
        text = encode_properties(batch_level)
        if COMMON_PROPERTIES(text.encode("utf-8", "replace")) is None:
            return None
        return tuple(
            (
                f"{ENTRY_END}{name}{NAME_END}".encode(),
                b"" if name in _INDEXED else encode_properties({name: value}).encode("utf-8", "replace"),
            )
            for name, value in batch_level.items()
        )

    def complete(self, sent: str) -> StoredProperties:
        """Return the stored form of a message's properties."""
        wait, deferred = True, None
        if _is_unusual(sent):
            sent, wait, deferred = _decode_unusual(sent)
        if sent and sent[-1] != ENTRY_END:
            sent += ENTRY_END
        unique_key = property_value(sent, PropertyName.UNIQ_KEY)
        if unique_key is None:
            unique_key = self._new_unique_key()
            sent = f"{sent}{PropertyName.UNIQ_KEY}{NAME_END}{unique_key}{ENTRY_END}"
        tags = property_value(sent, PropertyName.TAGS)
        if deferred is not None:
            deferred |= {PropertyName.UNIQ_KEY: unique_key, PropertyName.CLUSTER: self._cluster}
        encoded = (sent + self._cluster_entry).encode("utf-8", "replace")
        return StoredProperties(encoded, unique_key, tags, wait, deferred)

    def complete_record(self, record: BatchRecord, batch_level: dict[str, str]) -> StoredProperties:
        """Return the same for one record of a batch: its own properties, and the batch's properties that it lacks."""
        own = str(record.properties, "utf-8", "replace")
        names = decode_properties(own)
        added = {name: value for name, value in batch_level.items() if name not in names}
        separator = ENTRY_END if own and own[-1] != ENTRY_END else ""
        return self.complete(own + separator + encode_properties(added))


def keys_of(unique_key: bytes, keys: bytes | None) -> list[bytes]:
    """Return the index keys of a message."""
    if keys is None:
        return [unique_key]
    return [unique_key, *filter(None, keys.split(b" "))] if SPACE in keys else [unique_key, keys]


@lru_cache
def tags_code_of(tags: bytes | None) -> int:
    """Return protocol.message.tags_code of bytes; recent results are cached."""
    return tags_code(None if tags is None else tags.decode())


def _is_unusual(sent: str) -> bool:
    """Return whether `_decode_unusual` is needed. A match inside another name or value does no harm."""
    return (
        "DELAY" in sent
        or "TRAN_MSG" in sent
        or "TIMER_DELIVER_MS" in sent
        or "CLUSTER" in sent
        or "POP_CK" in sent
        or "WAIT\x01f" in sent
    )


def _decode_unusual(sent: str) -> tuple[str, bool, dict[str, str] | None]:
    """Return the properties without those that only a broker sets, whether to wait for the flush, and all of them if
    the message may be deferred."""
    properties = decode_properties(sent)
    wait = properties.get(PropertyName.WAIT, "true").lower() == "true"
    if PropertyName.POP_CHECKPOINT in properties or PropertyName.CLUSTER in properties:
        for name in (PropertyName.POP_CHECKPOINT, PropertyName.CLUSTER):
            properties.pop(name, None)
        sent = encode_properties(properties)
    return sent, wait, properties if needs_deferral(properties) else None
