"""The directory of a replay: its definition, where each queue goes, and the map from old to new offsets.

    DIRECTORY/lock                    held by the one process that runs the replay
    DIRECTORY/replay.json             id, definition, and for each old queue its new queue (Saved)
    DIRECTORY/map/00000001.parquet    rows of MAP_SCHEMA, in the order in which brokers acknowledged the copies

Every file is written under another name, synced and renamed, so it exists as a whole or not at all. The order of writes
makes a replay resumable after any end:

    1. The new queue of an old queue, and the end of the new queue at that time, are in replay.json before the first
       copy is sent. So all copies in a queue lie at or after the recorded end.
    2. Each new queue has at most one request in flight, and rows are recorded in the order of the acknowledgments. So
       the map has all copies of a queue up to some offset, and none after it. The next run reads the queue from there,
       and finds the copies that were sent but not recorded by their marks (copies.py).
    3. The copies of an old queue are sent in the order of their offsets. So one offset says which of them were sent.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from skylarkmq.clients.sdk.base.file_lock import lock
from skylarkmq.clients.spark.replay.errors import JournalError
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue

STATE: Final = "replay.json"
MAP: Final = "map"
LOCK: Final = "lock"
SUFFIX: Final = ".parquet"
_PART: Final = re.compile(r"[0-9]{8,18}")
PART_ROWS: Final = 100_000

MAP_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("msgId", pa.string()),
        ("newTopic", pa.string()),
        ("newBrokerName", pa.string()),
        ("newQueueId", pa.int32()),
        ("newQueueOffset", pa.int64()),
        ("scheduleOffset", pa.int64()),
        ("newMsgId", pa.string()),
        ("sendTimestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
"""The columns of the map. `msgId` is the unique id, which the copy keeps; `newMsgId` the offset id of the copy. With a
delay level the offset in the new queue is unknown until the delay has passed: `newQueueOffset` is null, and
`scheduleOffset` is the offset in the queue of the level."""


class Stream(msgspec.Struct, frozen=True):
    """The messages of one old queue that go to one topic."""

    source: MessageQueue
    topic: str


class Assigned(msgspec.Struct, frozen=True):
    """The new queue of a stream."""

    stream: Stream
    queue: MessageQueue


class Floor(msgspec.Struct, frozen=True):
    """The end of the queue that holds copies, before the first of them was sent."""

    queue: MessageQueue
    offset: int


class Saved(msgspec.Struct, frozen=True):
    """The content of replay.json. `definition` identifies the replay: a resume must have the same one."""

    id: str
    started_ms: int
    definition: dict[str, object]
    assigned: tuple[Assigned, ...] = ()
    floors: tuple[Floor, ...] = ()


class Recorded(msgspec.Struct, frozen=True):
    """Copies of one stream that one request stored: they have consecutive offsets from `first_offset` on, in `held`.

    `held` is the new queue itself, or the queue of a delay level.
    """

    stream: Stream
    queue: MessageQueue
    held: MessageQueue
    offsets: Sequence[int]
    msg_ids: Sequence[str | None]
    first_offset: int
    new_msg_ids: Sequence[str]
    sent_ms: int


class Journal:
    """The open directory of a replay; this process holds its lock until `close`."""

    def __init__(self, directory: Path, lock_descriptor: int, saved: Saved, targets: Targets) -> None:
        self.saved = saved
        self.queues = {each.stream: each.queue for each in saved.assigned}
        self.sent: dict[Stream, int] = {}  # the last offset that was sent
        self.ends: dict[MessageQueue, int] = {floor.queue: floor.offset for floor in saved.floors}
        self.rows = 0
        self._targets = targets
        self._directory = directory
        self._lock = lock_descriptor
        self._waiting: list[Recorded] = []
        self._waiting_rows = 0
        self._parts = 0
        self._failure: Exception | None = None
        self._load()

    def __repr__(self) -> str:
        return f"<Journal {self._directory} {self.rows} rows, {self._waiting_rows} to be written>"

    @classmethod
    def open(cls, directory: Path, new: Saved, targets: Targets) -> "Journal":
        """Return the journal of the replay in the directory; of `new` if it has none. Raises JournalError, OSError.

        JournalError if another process runs the replay, or if its definition differs from the definition of `new`.
        """
        (directory / MAP).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                lock(descriptor)
            except OSError as error:
                raise JournalError(
                    f"another process runs the replay in {directory} ({error}): wait for its end"
                ) from error
            saved = _saved_in(directory)
            if saved is None:
                saved = new
                _publish(directory / STATE, msgspec.json.encode(saved))
            elif differing := _differences(saved.definition, new.definition):
                raise JournalError(
                    f"{directory} belongs to a replay with other arguments ({', '.join(differing)}): repeat those to "
                    "resume it, or choose another directory"
                )
            return cls(directory, descriptor, saved, targets)
        except BaseException:
            os.close(descriptor)
            raise

    def assign(self, stream: Stream, queue: MessageQueue, held: MessageQueue, end: int) -> None:
        """Record the new queue of a stream, and the end of the queue that holds its copies, before one is sent."""
        assigned = (*self.saved.assigned, Assigned(stream, queue))
        floors = self.saved.floors
        if held not in self.ends:
            floors = (*floors, Floor(held, end))
        saved = msgspec.structs.replace(self.saved, assigned=assigned, floors=floors)
        _publish(self._directory / STATE, msgspec.json.encode(saved))
        self.saved = saved
        self.queues[stream] = queue
        self.ends.setdefault(held, end)

    def record(self, copies: Recorded) -> None:
        """Add acknowledged copies; `write` makes them durable."""
        self._waiting.append(copies)
        self._waiting_rows += len(copies.offsets)
        self.rows += len(copies.offsets)
        self._note(copies.stream, copies.offsets[-1], copies.held, copies.first_offset + len(copies.offsets))

    @property
    def map_directory(self) -> Path:
        """The directory of the map's files."""
        return self._directory / MAP

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows for a file."""
        return self._waiting_rows >= PART_ROWS

    def take(self) -> list[Recorded]:
        """Return the rows to be written by `write`, in order."""
        taken, self._waiting, self._waiting_rows = self._waiting, [], 0
        return taken

    def write(self, taken: Sequence[Recorded]) -> None:
        """Write a file of the map; calls must be in the order of `take`.

        Raises OSError. All later calls raise the same error: no file may exist without an earlier one.
        """
        if self._failure is not None:
            raise self._failure
        if not taken:
            return
        try:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_batches(map(_batch, taken)), sink, compression="zstd")
            self._parts += 1
            _publish(self._directory / MAP / f"{self._parts:08}{SUFFIX}", sink.getvalue())
        except Exception as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def _load(self) -> None:
        """Read how far the streams and the queues were recorded."""
        for path in sorted((self._directory / MAP).glob(f"*{SUFFIX}")):
            if not _PART.fullmatch(path.stem):
                raise JournalError(f"{path} is not a file of the map: remove it")
            self._parts = int(path.stem)
            try:
                for stream, queue, last, new in _ends_of(path):
                    self._note(stream, last, self._targets.held_in(queue), new + 1)
                self.rows += pq.read_metadata(path).num_rows
            except (OSError, pa.ArrowInvalid, KeyError) as error:
                raise JournalError(f"{path} is damaged ({error}): restore it, or choose another directory") from error

    def _note(self, stream: Stream, offset: int, held: MessageQueue, end: int) -> None:
        self.sent[stream] = max(offset, self.sent.get(stream, offset))
        self.ends[held] = max(end, self.ends.get(held, end))


def _saved_in(directory: Path) -> Saved | None:
    try:
        return msgspec.json.decode((directory / STATE).read_bytes(), type=Saved)
    except FileNotFoundError:
        if any((directory / MAP).glob(f"*{SUFFIX}")):
            raise JournalError(f"{directory} has a map but no {STATE}: choose another directory") from None
        return None
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(f"{directory / STATE} is damaged ({error}): choose another directory") from error


def _differences(saved: dict[str, object], given: dict[str, object]) -> list[str]:
    names = sorted(saved.keys() | given.keys())
    return [name for name in names if saved.get(name) != given.get(name)]


def _publish(path: Path, content: bytes | pa.Buffer) -> None:
    """Write a file that exists as a whole or not at all."""
    hidden = path.with_name(f".{path.name}.tmp")
    with hidden.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _batch(copies: Recorded) -> pa.RecordBatch:
    count = len(copies.offsets)
    source, queue = copies.stream.source, copies.queue
    new = pa.array(range(copies.first_offset, copies.first_offset + count), pa.int64())
    unknown = pa.nulls(count, pa.int64())
    columns = {
        "topic": source.topic,
        "brokerName": source.broker_name,
        "queueId": source.queue_id,
        "queueOffset": copies.offsets,
        "msgId": copies.msg_ids,
        "newTopic": queue.topic,
        "newBrokerName": queue.broker_name,
        "newQueueId": queue.queue_id,
        "newQueueOffset": new if copies.held == queue else unknown,
        "scheduleOffset": unknown if copies.held == queue else new,
        "newMsgId": copies.new_msg_ids,
        "sendTimestamp": copies.sent_ms,
    }
    arrays = []
    for field in MAP_SCHEMA:
        value = columns[field.name]
        if isinstance(value, str | int):
            arrays.append(pa.repeat(pa.scalar(value, field.type), count))
        else:
            arrays.append(pa.array(value, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=MAP_SCHEMA)


_STREAM: Final = ("topic", "brokerName", "queueId", "newTopic", "newBrokerName", "newQueueId")
_OFFSETS: Final = ("queueOffset", "newQueueOffset", "scheduleOffset")


def _ends_of(path: Path) -> Iterator[tuple[Stream, MessageQueue, int, int]]:
    """Yield for each stream in a file of the map: its new queue, its last offset, and the last offset of the copies."""
    table = pq.read_table(path, columns=[*_STREAM, *_OFFSETS])
    for row in table.group_by(_STREAM).aggregate([(name, "max") for name in _OFFSETS]).to_pylist():
        source = MessageQueue(row["topic"], row["brokerName"], row["queueId"])
        queue = MessageQueue(row["newTopic"], row["newBrokerName"], row["newQueueId"])
        new = row["newQueueOffset_max"]
        yield (
            Stream(source, queue.topic),
            queue,
            row["queueOffset_max"],
            row["scheduleOffset_max"] if new is None else new,
        )
