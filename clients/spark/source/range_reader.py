"""What an executor does: the ranges of a task become record batches.

    PullWindow says what to ask -> PullConnection -> answers -> when the buffer is full: pieces -> rows of one batch

Between two batches the pulls that are in flight go on, so the broker works while Spark does. A connection that breaks
is opened again, at the address that the name servers then tell, and what was in flight is asked for once more; a task
fails only when nothing has come for `brokerTimeoutMs`, because a local Spark allows no second attempt. Connections are
kept for the next task of the same worker process, unless an answer may still come on them.

Every offset of a range is accounted for: an answer without filter that has fewer records than offsets has lost some.
With a tag filter brokers compare hashes, so the exact text is compared here.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skylarkmq.clients.errors import BrokerError, ClientError
from skylarkmq.clients.settings import TlsSettings
from skylarkmq.clients.spark.arrow.columns import queue_offsets, record_batches
from skylarkmq.clients.spark.arrow.record_layout import Ints, steps
from skylarkmq.clients.spark.arrow.schema import arrow_schema
from skylarkmq.clients.spark.cluster import broker_address
from skylarkmq.clients.spark.source.data_loss import Loss, LossRule
from skylarkmq.clients.spark.source.pull_connection import Answer, PullConnection
from skylarkmq.clients.spark.source.pull_frames import PullFrames
from skylarkmq.clients.spark.source.pull_window import DELETED, Kind, Piece, PullWindow, Slot, verdict
from skylarkmq.clients.spark.source.source_options import SourceOptions
from skylarkmq.clients.spark.source.splitting import Range
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.filters.tag import split_tags
from skylarkmq.protocol.headers.pull import PullMessageResponseHeader

MOST_IN_FLIGHT: Final = 64
FILTERED_IN_FLIGHT: Final = 8
FILTERED_STEP: Final = 800
"""Offsets of a slot under a filter: as many as a broker looks through for one pull (docs/formats.md, "getMessage")."""

LEAST_IN_FLIGHT: Final = 2
IN_FLIGHT_BYTES: Final = 8 << 20
"""As many pulls are in flight as bring about this much."""

MOST_PAUSE_S: Final = 1.0
_POSSIBLE: Final = (ClientError, OSError)
_SIZE: Final = Struct(">i").unpack_from

log = logging.getLogger(__name__)

_idle: dict[tuple[str, TlsSettings | None], PullConnection] = {}
"""This process's connections that no task has now."""


class ConnectionBroken(Exception):
    """What was in flight has to be asked for again."""


class Work(msgspec.Struct, frozen=True):
    """A task: ranges of one broker, and where that was when the task was planned."""

    broker_name: str
    address: str | None
    ranges: tuple[Range, ...]


class ReaderStatistics(msgspec.Struct, frozen=True):
    """A task so far: what it gave to Spark, what it asked for, and how often its connection broke."""

    rows: int
    batches: int
    pulls: int
    breaks: int


class Patience:
    """How long to go on without success; pauses double meanwhile."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.reward()

    def reward(self) -> None:
        """Something has come: begin anew."""
        self._since_s = time.monotonic()
        self._pause_s = 0.02

    def wait(self, reason: object) -> bool:
        """Pause; False if the time is over."""
        if time.monotonic() - self._since_s > self._limit_s:
            return False
        log.info("waiting for a broker pause_s=%.2f reason=%s", self._pause_s, reason)
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, MOST_PAUSE_S)
        return True


class RangeReader:
    """Reads one task's ranges. `batches` may be run once."""

    def __init__(self, options: SourceOptions, work: Work) -> None:
        self._options = options
        self._work = work
        self._schema = arrow_schema(options.include_properties)
        self._tags = pa.array(split_tags(options.expression)) if options.is_by_tags else None
        is_plain = options.takes_everything
        self._window = PullWindow(work.ranges, options.pull_batch if is_plain else FILTERED_STEP)
        self._frames: dict[MessageQueue, PullFrames] = {}
        self._joined = bytearray()
        self._losses = LossRule(options.fail_on_data_loss)
        self._patience = Patience(options.broker_timeout_ms / 1000)
        self._limit = self._most = self._depth = MOST_IN_FLIGHT if is_plain else FILTERED_IN_FLIGHT
        self._busy: str | None = None
        self._is_doubtful = False
        self._given = self._batches = self._pulls = self._breaks = 0

    def __repr__(self) -> str:
        return f"<RangeReader {self._work.broker_name} {self._window!r}>"

    def statistics(self) -> ReaderStatistics:
        """The task's figures now."""
        return ReaderStatistics(rows=self._given, batches=self._batches, pulls=self._pulls, breaks=self._breaks)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. DataLoss, BrokerError; ConnectionBroken, ClientError or OSError when the broker stays away."""
        while not self._window.is_finished:
            connection = self._connected()
            try:
                yield from self._read(connection)
            except ConnectionBroken as error:
                connection.close()
                yield from self._rows(connection)
                self._window.lose_connection()
                self._breaks += 1
                self._depth = self._most = max(LEAST_IN_FLIGHT, self._most // 2)
                if not self._patience.wait(error):
                    raise
            except BaseException:  # a failure of ours, or a task that was given up: answers may still come
                connection.close()
                raise
            else:
                _idle[self._key(connection.address)] = connection
        self._losses.tell()
        log.info("task read broker=%s ranges=%d %s", self._work.broker_name, len(self._work.ranges), self.statistics())

    def _read(self, connection: PullConnection) -> Iterator[pa.RecordBatch]:
        """Until everything is read, or the connection breaks."""
        while not self._window.is_finished:
            for answer in self._answers(connection):
                self._take(answer)
            if connection.is_full:
                yield from self._rows(connection)
                connection.rewind()
        yield from self._rows(connection)
        connection.rewind()

    def _answers(self, connection: PullConnection) -> list[Answer]:
        """Ask, and wait for the next answers. ConnectionBroken."""
        try:
            self._ask(connection)
            return list(connection.receive())
        except (OSError, ProtocolError) as error:
            raise ConnectionBroken(f"broker {self._work.broker_name} at {connection.address}: {error}") from error

    # ----------------------------------------------------------------------------------------------------- requests

    def _ask(self, connection: PullConnection) -> None:
        """Have as many pulls in flight as there should be; not for every single one that was answered."""
        self._rest()
        window = self._window
        if window.in_flight > self._depth // 2:
            return
        frames: list[bytes] = []
        while window.in_flight < self._depth and (slot := window.next_slot()) is not None:
            opaque = connection.next_opaque()
            count = min(self._options.pull_batch, slot.end - slot.at)
            frames.append(self._frames_of(slot.range.queue).frame(slot.at, count, opaque))
            window.asked(opaque, slot)
        if frames:
            self._pulls += len(frames)
            connection.send(b"".join(frames))

    def _rest(self) -> None:
        """Pause, once for all answers that were a reason to."""
        if self._is_doubtful:
            time.sleep(self._options.lookup_interval_ms / 1000)
        if self._busy is not None and not self._patience.wait(self._busy):
            raise TimeoutError(f"it stays busy: {self._busy}")
        self._is_doubtful, self._busy = False, None

    def _frames_of(self, queue: MessageQueue) -> PullFrames:
        frames = self._frames.get(queue)
        if frames is None:
            frames = self._frames[queue] = PullFrames(self._options, queue, self._options.credentials())
        return frames

    # ------------------------------------------------------------------------------------------------------ answers

    def _take(self, answer: Answer) -> None:
        slot = self._window.answered(answer.command.opaque)
        if slot is None:
            return
        code = answer.command.code
        following = slot.at
        if code in _TOLD_OFFSETS:
            following = answer.command.header(PullMessageResponseHeader).next_begin_offset
        found = verdict(code, following, slot, not self._options.takes_everything)
        match found.kind:
            case Kind.TAKEN:
                self._patience.reward()
                self._weigh(answer.body[1] - answer.body[0])
                self._window.advance(slot, found.upto, answer.body)
            case Kind.PASSED:
                self._patience.reward()
                self._window.advance(slot, found.upto)
            case Kind.LOST:
                self._lost(slot, found.upto, found.why)
            case Kind.ENDED | Kind.GONE:
                self._doubted(slot, found.upto, found.why)
            case Kind.BUSY:
                self._window.again(slot)
                self._busy = answer.command.remark or "busy"
            case Kind.REFUSED:
                queue, command = slot.range.queue, answer.command
                raise BrokerError.of(
                    RequestCode.PULL_MESSAGE, command.code, command.remark, queue.broker_name, queue.topic
                )

    def _lost(self, slot: Slot, upto: int, why: str) -> None:
        """What the slot has of these offsets will not come; an error names all that the range misses by that."""
        self._patience.reward()
        end = min(upto, slot.range.end) if self._options.fail_on_data_loss else min(upto, slot.end)
        self._losses.note(Loss(slot.range.queue, slot.at, end, why))
        self._window.advance(slot, min(upto, slot.end))

    def _doubted(self, slot: Slot, upto: int, why: str) -> None:
        """A loss, if the broker says so several times."""
        if slot.tries < self._options.lookup_retries:
            self._window.again(slot)
            self._is_doubtful = True
        else:
            self._lost(slot, upto, why)

    def _weigh(self, size: int) -> None:
        """Large answers: fewer at a time; likewise for a while where a connection broke, perhaps over too many."""
        self._most = min(self._most + 1, self._limit)
        self._depth = max(LEAST_IN_FLIGHT, min(self._most, IN_FLIGHT_BYTES // max(size, 1)))

    # --------------------------------------------------------------------------------------------------------- rows

    def _rows(self, connection: PullConnection) -> Iterator[pa.RecordBatch]:
        """What can be given out of the buffer; nothing refers to it afterwards."""
        pieces = self._window.take()
        view = connection.view
        if pieces:
            buffer = self._in_order(view, pieces)
            starts = self._starts(buffer, pieces)
            for batch in map(self._wanted, record_batches(buffer, starts, self._work.broker_name, self._schema)):
                if batch.num_rows:
                    self._given += batch.num_rows
                    self._batches += 1
                    yield batch
        for piece in self._window.held():
            if isinstance(piece.body, tuple):
                piece.body = bytes(view[slice(*piece.body)])

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that have one of the tags, compared as text; mostly all of them."""
        if self._tags is None:
            return batch
        has_tag = pc.is_in(batch.column("tags"), value_set=self._tags)
        return batch if pc.all(has_tag).as_py() else batch.filter(has_tag)

    def _in_order(self, view: memoryview, pieces: list[Piece]) -> memoryview:
        """What the pieces' places are in, ascending in each range: the connection's own, if the answers came so."""
        if all(isinstance(piece.body, tuple) for piece in pieces) and is_ordered(pieces):
            pieces.sort(key=lambda piece: piece.body)
            return view
        bodies = [bytes_of(view, piece) for piece in pieces]
        size = sum(map(len, bodies))
        if size > len(self._joined):
            self._joined = bytearray(size)
        joined = memoryview(self._joined)[:size]
        at = 0
        for piece, body in zip(pieces, bodies, strict=True):
            piece.body = (at, at + len(body))
            joined[slice(*piece.body)] = body
            at += len(body)
        return joined

    def _starts(self, buffer: memoryview, pieces: Sequence[Piece]) -> Ints:
        """Where the wanted records begin."""
        found = [whole_steps(buffer, piece.body) for piece in pieces]
        if self._options.takes_everything:
            for piece, starts in zip(pieces, found, strict=True):
                if len(starts) != piece.upto - piece.begin:
                    self._note_missing(piece, queue_offsets(buffer, starts))
            return np.concatenate(found)
        ends = np.array([piece.upto for piece in pieces], np.int64)
        starts = np.concatenate(found)
        return starts[queue_offsets(buffer, starts) < ends.repeat([len(each) for each in found])]

    def _note_missing(self, piece: Piece, present: Ints) -> None:
        missing = np.setdiff1d(np.arange(piece.begin, piece.upto), present)
        for run in np.split(missing, np.flatnonzero(np.diff(missing) != 1) + 1):
            if len(run):
                self._losses.note(Loss(piece.range.queue, int(run[0]), int(run[-1]) + 1, DELETED))

    # -------------------------------------------------------------------------------------------------- connections

    def _connected(self) -> PullConnection:
        """A connection to the broker, wherever it is now."""
        address = self._work.address
        while True:
            try:
                address = address or asyncio.run(broker_address(self._options, self._work.broker_name))
                kept = _idle.pop(self._key(address), None)
                return kept or self._opened(address)
            except _POSSIBLE as error:
                address = None
                if not self._patience.wait(error):
                    raise

    def _opened(self, address: str) -> PullConnection:
        return PullConnection(address, self._options.tls_settings(), self._options.pull_timeout_ms / 1000)

    def _key(self, address: str) -> tuple[str, TlsSettings | None]:
        return address, self._options.tls_settings()


_TOLD_OFFSETS: Final = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


def whole_steps(buffer: memoryview, place: tuple[int, int] | bytes) -> Ints:
    """Where the records of an answer begin. ProtocolError if they do not fill it."""
    assert isinstance(place, tuple)
    begin, end = place
    starts = steps(buffer, begin, end)
    behind = begin
    if len(starts):
        last = int(starts[-1])
        behind = last + _SIZE(buffer, last)[0]
    if behind != end:
        raise ProtocolError(f"an answer has no record {end - behind} bytes before its end")
    return starts


def is_ordered(pieces: Sequence[Piece]) -> bool:
    """Whether the places of each range's pieces ascend as their offsets do."""
    last: dict[Range, int] = {}
    for piece in pieces:
        begin = piece.body[0]
        assert isinstance(begin, int)
        if begin < last.get(piece.range, 0):
            return False
        last[piece.range] = begin
    return True


def bytes_of(view: memoryview, piece: Piece) -> memoryview | bytes:
    """A piece's body, wherever it is."""
    return view[slice(*piece.body)] if isinstance(piece.body, tuple) else piece.body
