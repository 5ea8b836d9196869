"""Messages by key: offsets from the index, then their records from the log, oldest first.

The index finds messages by 32 bits of a hash. A message counts only if its topic and one of its keys are equal to those
of the query, so a query returns no message of another topic, and other messages do not use up its limit.

If more messages match than the query requests, or more bytes than a response may have, the newest are returned. An
offset without a record in the log is skipped.

Source: docs/reference/disk.md, "Index queries".
"""

import asyncio
from typing import Final

import msgspec

from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.index.search import SearchCriteria, Steps, run_now, with_cold_read_retry
from skylarkmq.broker.store.read.store_reader import StoreReader
from skylarkmq.protocol.disk import index_hash, index_keys
from skylarkmq.protocol.record import Record, parse

MAX_RESPONSE_BYTES: Final = 15 << 20
"""No further record is added beyond this size: a response is one frame, and clients accept 16 MiB."""

SLICE_BYTES: Final = 64 << 10
"""After reading a message of more bytes a query lets other work run: the checksum covers the whole body."""


class Found(msgspec.Struct, frozen=True):
    """Complete records in log order, and the store time (ms) and physical offset of the newest message in the index.

    The latter two are 0 if the index has no match.
    """

    records: list[bytes] = []
    last_update_timestamp: int = 0
    last_update_offset: int = 0


class KeyQuery:
    """Queries of one store, for at most `most` messages each. Without an index nothing is found."""

    def __init__(self, feed: IndexFeed | None, reader: StoreReader, most: int) -> None:
        self._feed = feed
        self._reader = reader
        self._most = most

    def limit(self, most: int) -> None:
        """Set the maximum number of messages per query."""
        self._most = most

    async def run(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Found:
        """Return the newest `max_num` messages of a topic with this key, stored in [begin, end] (ms)."""
        steps = self._steps(topic, key, max_num, begin, end)
        try:
            while True:
                cold = next(steps)
                await (asyncio.sleep(0) if cold is None else asyncio.shield(self._reader.fetch(cold)))
        except StopIteration as last:
            found: Found = last.value
            return found
        finally:
            steps.close()

    def run_now(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Found:
        """Return the same as `run`, without an event loop."""
        return run_now(self._steps(topic, key, max_num, begin, end))

    def _steps(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Steps[Found]:
        if self._feed is None:
            return Found()
        index = self._feed.index
        criteria = SearchCriteria(index_hash(f"{topic}#{key}"), min(max_num, self._most), begin, end)

        def is_match(offset: int) -> Steps[bool]:
            record = yield from with_cold_read_retry(self._reader.record_at, offset)
            if record is None:
                return False
            is_found, is_large = has_key(record, topic, key), len(record) > SLICE_BYTES
            del record  # a view pins its segment
            if is_large:
                yield None
            return is_found

        offsets = yield from index.search(criteria, self._reader.reads.read, is_match)
        if not offsets:
            return Found()
        last_update = index.last_update
        records: list[bytes] = []
        size = 0
        for offset in sorted(offsets, reverse=True):
            record = yield from with_cold_read_retry(self._reader.record_at, offset)
            if record is not None:
                size += len(record)
                if records and size > MAX_RESPONSE_BYTES:
                    break
                records.append(bytes(record))
        return Found(records[::-1], *last_update)

    def __repr__(self) -> str:
        return f"<KeyQuery {self._feed!r}>"


def has_key(record: memoryview, topic: str, key: str) -> bool:
    """Return whether a record has this topic and this key: its unique key, or one of the words of its KEYS."""
    found = parse(record, check_body=False)
    if not isinstance(found, Record) or found.topic != topic:
        return False
    return any(each.decode("utf-8", "replace") == key for each in index_keys(found.properties))
