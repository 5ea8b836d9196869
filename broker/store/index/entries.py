"""Keys that wait for an index file: for each key the hash, and the physical offset and store time of its message.

Dispatch only collects the keys, message by message. Hashes are computed when entries are taken, for as many keys at
once as there are, because NumPy is fast for large batches only. The keys of a message come from its `keys` if these are
set, otherwise from its properties.

Source: docs/reference/disk.md, "IndexFile".
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from skylarkmq.broker.store.index.hashing import Numbers, hash_keys, int64_array
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.message import java_hash

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_KNOWN_PREFIXES: Final = 16_384


class Indexed(Protocol):
    """The fields of a message that the index reads; appends and records have them."""

    @property
    def topic(self) -> str: ...
    @property
    def properties(self) -> bytes: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def keys(self) -> list[bytes] | None: ...


class Entries(NamedTuple):
    """Three arrays of equal length: hashes of `topic#key`, physical offsets, store times in ms."""

    hashes: Numbers
    offsets: Numbers
    timestamps: Numbers

    def part(self, begin: int, end: int | None = None) -> "Entries":
        """Return the entries [begin, end)."""
        return Entries(self.hashes[begin:end], self.offsets[begin:end], self.timestamps[begin:end])


_NONE: Final = np.zeros(0, np.int64)
NO_ENTRIES: Final = Entries(_NONE, _NONE, _NONE)


class PythonIndexEntries:
    """The pure-Python version: entries in log order. `len` returns the number of waiting entries."""

    def __init__(self) -> None:
        self._ready = NO_ENTRIES
        self.clear()

    def add(self, messages: Sequence[Indexed], passed: int = 0) -> None:
        """Add the keys of messages, without the first `passed` keys of the first message."""
        keys, counts, prefixes = self._keys, self._counts, self._prefixes
        offsets, timestamps = self._offsets, self._timestamps
        topic, prefix = "", 0
        for message in messages:
            found = message.keys
            if found is None:
                found = index_keys(message.properties)
            if passed:
                found, passed = found[passed:], 0
            if message.sys_flag & _TRANSACTION == _ROLLBACK:
                found = []
            if message.topic is not topic:
                topic = message.topic
                prefix = prefix_hash(topic)
            keys += found
            counts.append(len(found))
            prefixes.append(prefix)
            offsets.append(message.physical_offset)
            timestamps.append(message.store_timestamp)

    def __len__(self) -> int:
        return len(self._ready.hashes) + len(self._keys)

    def first(self, count: int) -> Entries:
        """Return the oldest entries, up to `count`. They stay until `drop`."""
        if self._keys:
            self._hash()
        return self._ready.part(0, count)

    def drop(self, count: int) -> None:
        """Remove the oldest `count` of the entries that `first` returned: they are in a file."""
        self._ready = self._ready.part(count) if count < len(self._ready.hashes) else NO_ENTRIES

    def clear(self) -> None:
        """Remove all entries."""
        self._ready = NO_ENTRIES
        self._keys: list[bytes] = []
        self._counts: list[int] = []  # the number of keys of each message
        self._prefixes: list[int] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []

    def _hash(self) -> None:
        """Turn the collected keys into entries."""
        before, keys = self._ready, self._keys
        counts = int64_array(self._counts)
        offsets = np.repeat(int64_array(self._offsets), counts)
        timestamps = np.repeat(int64_array(self._timestamps), counts)
        found = Entries(hash_keys(keys, np.repeat(int64_array(self._prefixes), counts)), offsets, timestamps)
        self.clear()
        self._ready = found if not len(before.hashes) else _joined(before, found)

    def __repr__(self) -> str:
        return f"<IndexEntries {len(self)}>"


def _joined(first: Entries, second: Entries) -> Entries:
    return Entries(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


class CompiledIndexEntries:
    """The compiled version, which hashes each key when it is added."""

    def __init__(self) -> None:
        self._rows: Any = _compiled.IndexEntries(index_keys)
        self.add: Callable[..., None] = self._rows.add
        self.drop: Callable[[int], None] = self._rows.drop
        self.clear: Callable[[], None] = self._rows.clear

    def __len__(self) -> int:
        return len(self._rows)

    def first(self, count: int) -> Entries:
        """Return the oldest entries, up to `count`. They stay until `drop`."""
        return Entries(*(np.frombuffer(column, np.int64) for column in self._rows.columns(count)))

    def __repr__(self) -> str:
        return f"<IndexEntries {len(self)}>"


class _Prefixes(dict[str, int]):
    def __missing__(self, topic: str) -> int:
        if len(self) >= _KNOWN_PREFIXES:
            self.clear()
        prefix = self[topic] = java_hash(f"{topic}#") & 0xFFFF_FFFF
        return prefix


prefix_hash: Final = _Prefixes().__getitem__
"""Return Java's hash of `topic#`, unsigned: the start value for the hash of a key."""


_compiled = compiled.load("index")
if TYPE_CHECKING or _compiled is None:
    IndexEntries = PythonIndexEntries
else:
    IndexEntries = CompiledIndexEntries
