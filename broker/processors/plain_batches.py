"""Plain batches: from the body of one to the appends of its messages, without a closer look at any.

A batch is plain if every message in it has the properties of a plain send (`stored_properties.py`); those of the batch
that a message lacks are added to it. The messages of one batch share all but body, properties, flag and keys, so each
costs one match, and little else.

The compiled twin is in protocol/compiled/batch.py. Source: docs/formats.md, "Batch body".
"""

from typing import Final

from broker.processors.stored_properties import END, END_BYTES, PLAIN, SPACE, Shared, keys_of, tags_code_of
from broker.store.append import Append
from protocol.message import ENTRY_END, NAME_END, PropertyName, batch_records
from protocol.record import Buffer

_WAITS: Final = f"{PropertyName.WAIT}{NAME_END}true{ENTRY_END}".encode()
_ONLY_WAITS: Final[Shared] = ((f"{ENTRY_END}{PropertyName.WAIT}{NAME_END}".encode(), _WAITS),)
"""What clients say of nearly every batch; whether a message says it too, its match tells."""


class PlainBatches:
    """`cluster_entry` closes all properties."""

    def __init__(self, cluster_entry: bytes) -> None:
        self._cluster_entry = cluster_entry

    def __repr__(self) -> str:
        return f"<PlainBatches {self._cluster_entry!r}>"

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
