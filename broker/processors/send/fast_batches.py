"""Fast path for batches: from the body of a batch to the appends of its messages.

A batch takes the fast path if every message in it has common properties (`stored_properties.py`). A property of the
batch that a message lacks is added to it. The messages of one batch share everything but body, properties, flag and
keys, so each costs little more than one regular expression match.

In most batches all bodies have the same length, and properties differ in their keys only. Such a batch is a matrix with
one message per row. If every row has valid key bytes where the first row has its keys, and the same bytes as the first
row everywhere else, then matching the first row is enough. `columns` converts such a batch to columns; `appends`
converts any other batch message by message.

The compiled counterpart of `appends` is protocol/compiled/batch.py. Source: docs/formats.md, "Batch body".
"""

from string import ascii_letters, digits
from struct import Struct
from typing import Final

import numpy as np

from skylarkmq.broker.processors.send.stored_properties import (
    COMMON_PROPERTIES,
    END,
    END_BYTES,
    SPACE,
    Shared,
    keys_of,
    tags_code_of,
)
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.batch_columns import BatchColumns, Bytes
from skylarkmq.protocol.message import ENTRY_END, NAME_END, PropertyName, batch_records
from skylarkmq.protocol.record import Buffer

_WAITS: Final = f"{PropertyName.WAIT}{NAME_END}true{ENTRY_END}".encode()
_ONLY_WAITS: Final[Shared] = ((f"{ENTRY_END}{PropertyName.WAIT}{NAME_END}".encode(), _WAITS),)
"""Properties of nearly every batch; the match of a message finds whether it has them, too."""

_LENGTHS: Final = Struct(">12xii").unpack_from  # flag and body length, of a message in a batch
_LENGTH: Final = Struct(">h").unpack_from
_BODY_AT: Final = 20  # of a message in a batch
_OF_KEY: Final = bytes(range(0x21, 0x7F))
_OF_UNIQUE_KEY: Final = (ascii_letters + digits).encode()


class FastPathBatches:
    """Converts batches. `cluster_entry` is appended to all properties."""

    def __init__(self, cluster_entry: bytes) -> None:
        self._cluster_entry = cluster_entry

    def __repr__(self) -> str:
        return f"<FastPathBatches {self._cluster_entry!r}>"

    def columns(
        self,
        body: Buffer,
        shared: Shared,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> BatchColumns | None:
        """Return the columns of a batch with the properties `shared`; None if it does not qualify, or its messages
        differ in shape."""
        size = len(body)
        if size < _BODY_AT + 2:
            return None
        flag, body_size = _LENGTHS(body)
        text_at = _BODY_AT + body_size + 2
        if body_size < 0 or text_at > size:
            return None
        step = text_at + _LENGTH(body, text_at - 2)[0]
        if step <= text_at or size % step:
            return None
        own = bytes(body[text_at:step])
        found = COMMON_PROPERTIES(own if own[-1] == END else own + END_BYTES) if own.isascii() else None
        if found is None or found[2] is None:
            return None
        added = self._added(own, shared, is_waiting=found[3] is not None)
        rows = np.frombuffer(body, np.uint8).reshape(-1, step)
        if added is None or not _is_same(rows[:, 12:_BODY_AT]) or not _is_same(rows[:, text_at - 2 : text_at]):
            return None
        texts = rows[:, text_at:].copy()
        keys = _keys(texts, [found.span(2), *_spans_of(own, *found.span(1))])
        if keys is None:
            return None
        return BatchColumns(
            rows[:, _BODY_AT : text_at - 2],
            texts,
            added if own[-1] == END else END_BYTES + added,
            keys,
            topic,
            queue_id,
            tags_code_of(found[4]),
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            reconsume_times,
        )

    def _added(self, own: bytes, shared: Shared, *, is_waiting: bool) -> bytes | None:
        """Return the bytes that are stored after a message's own properties; None if that message does not qualify."""
        added = self._cluster_entry
        if shared == _ONLY_WAITS:
            return added if is_waiting else _WAITS + added
        for mark, entry in reversed(shared):
            if mark not in own and not own.startswith(mark[1:]):
                if not entry:
                    return None
                added = entry + added
        return added

    def appends(
        self,
        body: Buffer,
        shared: Shared,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> list[Append] | None:
        """Return the appends of a batch with the properties `shared`; None if it does not qualify.

        Raises RequestError if it is no valid batch.
        """
        usual = self._cluster_entry
        lacking_wait = _WAITS + usual if shared == _ONLY_WAITS else usual
        marks = [] if shared == _ONLY_WAITS else [(mark, mark[1:], entry) for mark, entry in reversed(shared)]
        appends = []
        last_tags, code = None, 0
        for flag, content, own in batch_records(body):
            if not own.isascii():
                own = str(own, "utf-8", "replace").encode()
            if own and own[-1] != END:
                own += END_BYTES
            found = COMMON_PROPERTIES(own)
            if found is None:
                return None
            keys, unique_key, wait, tags = found.groups()
            if unique_key is None:
                return None
            added = usual if wait else lacking_wait
            for mark, first, entry in marks:
                if mark not in own and not own.startswith(first):
                    if not entry:
                        return None
                    added = entry + added
            if tags != last_tags:
                last_tags, code = tags, tags_code_of(tags)
            append = Append(
                topic,
                queue_id,
                content,
                own + added,
                code,
                flag,
                sys_flag,
                born_timestamp,
                born_host,
                reconsume_times,
            )
            append.keys = keys_of(unique_key, keys) if keys is None or SPACE in keys else [unique_key, keys]
            appends.append(append)
        return appends


def _is_same(rows: Bytes) -> bool:
    """Return whether all rows have the same bytes."""
    first: bytes = rows[0].tobytes()
    return rows.tobytes() == first * len(rows)


def _keys(texts: Bytes, spans: list[tuple[int, int]]) -> list[bytes] | None:
    """Return the keys of all messages, each message's unique key first.

    `spans`: the positions of the first message's keys. Returns None if a key is invalid, or if other bytes differ.
    """
    others = texts.copy()
    keys = [b""] * (len(spans) * len(texts))
    allowed = _OF_UNIQUE_KEY
    for number, (begin, end) in enumerate(spans):
        key = np.ascontiguousarray(texts[:, begin:end])
        if key.tobytes().translate(None, allowed):
            return None
        keys[number :: len(spans)] = key.view(f"V{end - begin}").ravel().tolist()
        others[:, begin:end] = 0
        allowed = _OF_KEY
    return keys if _is_same(others) else None


def _spans_of(text: bytes, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the positions of the keys in KEYS, which are separated by spaces. `begin` is -1 if there are none."""
    spans = []
    for key in text[begin:end].split(b" ") if begin >= 0 else ():
        if key:
            spans.append((begin, begin + len(key)))
        begin += len(key) + 1
    return spans
