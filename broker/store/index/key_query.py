"""Messages by key: offsets from the index, then their records from the log, oldest first.

Of more messages than are asked for the newest are answered; of more bytes than an answer should have, too. An offset
whose record is gone, or was never one, is passed over.

Source: docs/formats.md, "Index queries".
"""

import asyncio
from typing import Final

import msgspec

from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.index.search import Steps, Wanted, patiently, run_now
from skylarkmq.broker.store.read.store_reader import StoreReader
from skylarkmq.protocol.disk import index_hash

MAX_ANSWER_BYTES: Final = 15 << 20
"""Beyond that no further record is taken: an answer is one frame, and clients take 16 MiB."""


class Found(msgspec.Struct, frozen=True):
    """Whole records in the log's order; store time (ms) and physical offset of the newest message in the index.

    The latter two are 0 when the index has nothing that was asked for.
    """

    records: list[bytes] = []
    last_update_timestamp: int = 0
    last_update_offset: int = 0


class KeyQuery:
    """Queries of one store; at most `most` messages each. Without an index nothing is found."""

    def __init__(self, feed: IndexFeed | None, reader: StoreReader, most: int) -> None:
        self._feed = feed
        self._reader = reader
        self._most = most

    def limit(self, most: int) -> None:
        """Answer with at most so many messages from now on."""
        self._most = most

    async def run(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Found:
        """The newest `max_num` messages of a topic with that key stored in [begin, end] (ms)."""
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
        """The same without a loop."""
        return run_now(self._steps(topic, key, max_num, begin, end))

    def _steps(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Steps[Found]:
        if self._feed is None:
            return Found()
        index = self._feed.index
        wanted = Wanted(index_hash(f"{topic}#{key}"), min(max_num, self._most), begin, end)
        offsets = yield from index.search(wanted, self._reader.reads.read)
        if not offsets:
            return Found()
        last_update = index.last_update
        records: list[bytes] = []
        size = 0
        for offset in sorted(offsets, reverse=True):
            record = yield from patiently(self._reader.record_at, offset)
            if record is not None:
                size += len(record)
                if records and size > MAX_ANSWER_BYTES:
                    break
                records.append(bytes(record))
        return Found(records[::-1], *last_update)

    def __repr__(self) -> str:
        return f"<KeyQuery {self._feed!r}>"
