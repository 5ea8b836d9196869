"""The rows of a record batch by stream: what goes from one old queue to one topic, in the order of the rows.

A batch of an archive has long runs of one queue; a batch of a topic or a store mixes queues. The order of queues among
each other has no meaning, so the rows of each stream are processed together.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.clients.spark.replay.copies import kept_properties, mark_prefix
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.clients.spark.replay.journal import Stream
from skylarkmq.clients.spark.replay.queue_senders import Copy
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.message import ENTRY_END, MAX_PROPERTIES_BYTES, NAME_END, PropertyName

COMPRESSION: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE_MASK
"""The bits of a sysFlag that a copy keeps: how to decompress the body."""
COLUMNS: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "sysFlag", "flag", "keys", "msgId",
    "properties", "body",
)  # fmt: skip
"""The columns that a replay without a condition reads."""


class Run(NamedTuple):
    """Rows of one stream, in order."""

    stream: Stream
    rows: NDArray[np.int64]


def runs(batch: pa.RecordBatch, targets: Targets) -> Iterator[Run]:
    """Yield the rows of each stream. Raises ReplayFailed for a dead letter whose topic is unknown."""
    topics, topic_names = _codes(batch.column("topic"))
    brokers, broker_names = _codes(batch.column("brokerName").fill_null(""))
    queues = batch.column("queueId").to_numpy(zero_copy_only=False).astype(np.int64)
    new_topics, new_names = _new_topics(batch, topic_names, topics, targets)
    keys = np.stack((topics, brokers, queues, new_topics))
    order = np.lexsort(keys[::-1])
    ordered = keys[:, order]
    begins = np.flatnonzero(np.any(np.diff(ordered, axis=1, prepend=-1) != 0, axis=0))
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        topic, broker, queue_id, new_topic = ordered[:, begin].tolist()
        source = MessageQueue(topic_names[topic], broker_names[broker], queue_id)
        yield Run(Stream(source, new_names[new_topic]), order[begin:end])


def _codes(column: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def _new_topics(
    batch: pa.RecordBatch, names: list[str], topics: NDArray[np.int64], targets: Targets
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the new topic of each row, as an index into the returned names."""
    by_topic = [targets.topic_of(name) for name in names]
    new_names = list(dict.fromkeys(name for name in by_topic if name is not None))
    codes = np.array([-1 if name is None else new_names.index(name) for name in by_topic], np.int64)[topics]
    unnamed = np.isin(topics, [code for code, name in enumerate(by_topic) if name is None])
    if unnamed.any():
        known = {name: code for code, name in enumerate(new_names)}
        rows = np.flatnonzero(unnamed)
        for row, properties in zip(
            rows.tolist(), batch.column("properties").take(pa.array(rows)).to_pylist(), strict=True
        ):
            name = targets.named_by(properties or "")
            if name is None:
                raise ReplayFailed(
                    f"{_place(batch, row)} has no property {' or '.join(targets.naming)}, which would name its topic: "
                    "choose a topic for such messages (--to-topic, --map-topic)"
                )
            codes[row] = known.setdefault(name, len(known))
        new_names = list(known)
    return codes, new_names


def _place(batch: pa.RecordBatch, row: int) -> str:
    topic, broker, queue_id, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "brokerName", "queueId", "queueOffset")
    )
    return f"message {offset} of {MessageQueue(topic, broker or '', queue_id)}"


class CopyMaker:
    """Makes the copies of one batch."""

    def __init__(self, batch: pa.RecordBatch, replay_id: str, targets: Targets) -> None:
        self._batch = batch
        self._replay_id = replay_id
        delay = targets.delay_level
        self._delay = f"{PropertyName.DELAY}{NAME_END}{delay}{ENTRY_END}".encode() if delay else b""
        self.offsets = batch.column("queueOffset").to_numpy(zero_copy_only=False)
        self._compression = _numbers(batch, "sysFlag") & COMPRESSION
        self._flags = _numbers(batch, "flag")
        self._msg_ids = batch.column("msgId")
        self._bodies = batch.column("body").fill_null(b"")
        self._properties = batch.column("properties").cast(pa.binary()).fill_null(b"")

    def __repr__(self) -> str:
        return f"<CopyMaker {self._batch.num_rows} rows>"

    def copies(self, run: Run) -> Iterator[Copy]:
        """Yield the copies of a run's rows. Raises ReplayFailed for properties that are too long."""
        source = run.stream.source
        prefix = mark_prefix(self._replay_id, source.topic, source.broker_name, source.queue_id)
        numbers = (run.rows, self.offsets[run.rows], self._compression[run.rows], self._flags[run.rows])
        texts = (_objects(column, run.rows) for column in (self._msg_ids, self._bodies, self._properties))
        values = (*(array.tolist() for array in numbers), *texts)
        for row, offset, compression, flag, msg_id, body, properties in zip(*values, strict=True):
            kept = kept_properties(properties, prefix, offset) + self._delay
            if len(kept) > MAX_PROPERTIES_BYTES:
                raise ReplayFailed(
                    f"{_place(self._batch, row)} has properties of {len(kept)} bytes with the mark of the replay, the "
                    f"limit is {MAX_PROPERTIES_BYTES}: exclude it (--where)"
                )
            yield Copy(run.stream, offset, msg_id, compression, flag, body, kept)


def _numbers(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = batch.column(name).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _objects(column: pa.Array, rows: NDArray[np.int64]) -> list[Any]:
    """Return these rows of a string or binary column. `to_numpy` takes a fraction of the time of `to_pylist`."""
    is_slice = len(rows) and int(rows[-1] - rows[0]) == len(rows) - 1
    chosen = column.slice(int(rows[0]), len(rows)) if is_slice else column.take(pa.array(rows))
    found: list[Any] = chosen.to_numpy(zero_copy_only=False).tolist()
    return found
