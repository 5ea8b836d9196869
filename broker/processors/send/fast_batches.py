"""Fast path for batches: from the body of a batch to the appends of its messages.

A batch takes the fast path if every message in it has common properties (`stored_properties.py`). A property of the
batch that a message lacks is added to it. The messages of one batch share everything but body, properties, flag and
keys, so each costs little more than one regular expression match.

The compiled counterpart is protocol/compiled/batch.py. Source: docs/reference/wire.md, "Batch body".
"""

from typing import Final

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
from skylarkmq.protocol.message import ENTRY_END, NAME_END, PropertyName, batch_records
from skylarkmq.protocol.record import Buffer

_WAITS: Final = f"{PropertyName.WAIT}{NAME_END}true{ENTRY_END}".encode()
_ONLY_WAITS: Final[Shared] = ((f"{ENTRY_END}{PropertyName.WAIT}{NAME_END}".encode(), _WAITS),)
"""Properties of nearly every batch; the match of a message finds whether it has them, too."""


class FastPathBatches:
    """Converts batches. `cluster_entry` is appended to all properties."""

    def __init__(self, cluster_entry: bytes) -> None:
        self._cluster_entry = cluster_entry

    def __repr__(self) -> str:
        return f"<FastPathBatches {self._cluster_entry!r}>"

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
