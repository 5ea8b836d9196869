"""Plain batches: from the body of one to the appends of its messages, without a closer look at any.

A batch is plain if every message in it has the properties of a plain send (`stored_properties.py`); those of the batch
that a message lacks are added to it. The messages of one batch share all but body, properties, flag and keys, so each
costs one match, and little else.

Most batches are of one shape: bodies are equally long, and properties differ in keys only. Such a batch is a matrix, a
message to a row. Where the first message has its keys, the others have bytes that a key may have; everywhere else they
have the same bytes, so that all are what the first one is, and it alone is matched. `columns` makes columns of such a
batch; `appends` takes any other message by message.

The compiled twin of `appends` is in protocol/compiled/batch.py. Source: docs/formats.md, "Batch body".
"""

from string import ascii_letters, digits
from struct import Struct
from typing import Final

import numpy as np

from skylarkmq.broker.processors.send.stored_properties import (
    END,
    END_BYTES,
    PLAIN,
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
"""What clients say of nearly every batch; whether a message says it too, its match tells."""

_LENGTHS: Final = Struct(">12xii").unpack_from  # flag and body length, of a message in a batch
_LENGTH: Final = Struct(">h").unpack_from
_BODY_AT: Final = 20  # of a message in a batch
_OF_KEY: Final = bytes(range(0x21, 0x7F))
_OF_UNIQUE_KEY: Final = (ascii_letters + digits).encode()


class PlainBatches:
    """`cluster_entry` closes all properties."""

    def __init__(self, cluster_entry: bytes) -> None:
        self._cluster_entry = cluster_entry

    def __repr__(self) -> str:
        return f"<PlainBatches {self._cluster_entry!r}>"

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
        """A batch with the properties `shared` as columns; None if it is not plain, or not all are of one shape."""
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
        found = PLAIN(own if own[-1] == END else own + END_BYTES) if own.isascii() else None
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
        """What is stored behind the properties of a message; None if it is not plain then."""
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
        """The appends of a batch with the properties `shared`; None if it is not plain. RequestError: it is none."""
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
            found = PLAIN(own)
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
    """Whether all have the bytes of the first."""
    first: bytes = rows[0].tobytes()
    return rows.tobytes() == first * len(rows)


def _keys(texts: Bytes, spans: list[tuple[int, int]]) -> list[bytes] | None:
    """What stands in the texts at the places of the first one's keys, its unique key first, text after text; None if
    that is no key, or they differ elsewhere, too."""
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
    """Where the keys stand in KEYS, which has spaces between them; -1: there is none."""
    spans = []
    for key in text[begin:end].split(b" ") if begin >= 0 else ():
        if key:
            spans.append((begin, begin + len(key)))
        begin += len(key) + 1
    return spans
