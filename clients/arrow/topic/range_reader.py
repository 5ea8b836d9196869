"""The work of one task: reads ranges of queues of one broker and returns record batches.

    PullWindow: requests -> PullConnection -> responses -> when the buffer is full: pieces -> rows of one batch

Pulls stay in flight between two batches, so the broker works while the caller processes a batch. A broken connection is
opened again, at the address that the name servers then return, and the requests in flight are repeated. A task fails
only if there is no progress for `brokerTimeoutMs`, because a local Spark allows no second attempt. A connection is kept
for the next task of the same process, unless responses are outstanding, or `keep_connection` is off.

Every offset of a range is accounted for: without a filter, a response with fewer records than offsets means lost
messages. Brokers compare only the hashes of tags, so tags are compared as text here.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skylarkmq.clients.arrow.columns import queue_offsets, record_batches, stored_columns
from skylarkmq.clients.arrow.record_layout import Ints, record_starts
from skylarkmq.clients.arrow.row_filter import RowFilter
from skylarkmq.clients.arrow.topic.cluster import broker_address
from skylarkmq.clients.arrow.topic.data_loss import Loss, LossRule
from skylarkmq.clients.arrow.topic.options import TopicOptions
from skylarkmq.clients.arrow.topic.pull_connection import PullConnection, PullResponse
from skylarkmq.clients.arrow.topic.pull_frames import PullFrames
from skylarkmq.clients.arrow.topic.pull_window import DELETED, Kind, Piece, PullWindow, Slot, verdict
from skylarkmq.clients.arrow.topic.splitting import Range
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.filters.tag import split_tags
from skylarkmq.protocol.headers.pull import PullMessageResponseHeader

MAX_IN_FLIGHT: Final = 64
FILTERED_IN_FLIGHT: Final = 8
FILTERED_STEP: Final = 800
"""Offsets of a slot with a filter: the number that a broker examines in one pull.

Source: docs/reference/disk.md, "getMessage".
"""

MIN_IN_FLIGHT: Final = 2
IN_FLIGHT_BYTES: Final = 8 << 20
"""The target size of all responses in flight; it determines the number of pulls in flight."""

MOST_PAUSE_S: Final = 1.0
_RETRIED_ERRORS: Final = (ClientError, OSError)
_SIZE: Final = Struct(">i").unpack_from

log = logging.getLogger(__name__)

_idle: dict[tuple[str, TlsSettings | None], PullConnection] = {}
"""Idle connections of this process."""


class ConnectionBroken(Exception):
    """The connection broke: the requests in flight must be repeated."""


class Work(msgspec.Struct, frozen=True):
    """A task: ranges of one broker, and the broker's address when the task was planned."""

    broker_name: str
    address: str | None
    ranges: tuple[Range, ...]


class ReaderStatistics(msgspec.Struct, frozen=True):
    """Figures of a task: rows returned, pulls sent, and reconnections."""

    rows: int
    batches: int
    pulls: int
    breaks: int


class RetryDeadline:
    """A time limit without progress, with pauses that double."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.note_progress()

    def note_progress(self) -> None:
        """Progress: restart the time limit."""
        self._since_s = time.monotonic()
        self._pause_s = 0.02

    def wait(self, reason: object) -> bool:
        """Pause; return False if the time limit has passed."""
        if time.monotonic() - self._since_s > self._limit_s:
            return False
        log.info("waiting for a broker pause_s=%.2f reason=%s", self._pause_s, reason)
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, MOST_PAUSE_S)
        return True


class RangeReader:
    """Reads one task's ranges. `batches` may be called once."""

    def __init__(
        self,
        options: TopicOptions,
        work: Work,
        row_filter: RowFilter | None = None,
        *,
        keep_connection: bool = True,
    ) -> None:
        self._options = options
        self._work = work
        self._filter = row_filter
        self._keep_connection = keep_connection
        self._tags = pa.array(split_tags(options.expression)) if options.is_by_tags else None
        is_plain = options.takes_everything
        self._window = PullWindow(work.ranges, options.pull_batch if is_plain else FILTERED_STEP)
        self._frames: dict[MessageQueue, PullFrames] = {}
        self._joined = bytearray()
        self._losses = LossRule(options.fail_on_data_loss)
        self._deadline = RetryDeadline(options.broker_timeout_ms / 1000)
        self._limit = self._most = self._depth = MAX_IN_FLIGHT if is_plain else FILTERED_IN_FLIGHT
        self._busy: str | None = None
        self._must_confirm = False
        self._given = self._batches = self._pulls = self._breaks = 0

    def __repr__(self) -> str:
        return f"<RangeReader {self._work.broker_name} {self._window!r}>"

    def statistics(self) -> ReaderStatistics:
        """Return the task's figures now."""
        return ReaderStatistics(rows=self._given, batches=self._batches, pulls=self._pulls, breaks=self._breaks)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises DataLoss, BrokerError; ConnectionBroken, ClientError or OSError if the broker stays unreachable.
        """
        while not self._window.is_finished:
            connection = self._connected()
            try:
                yield from self._read(connection)
            except ConnectionBroken as error:
                connection.close()
                yield from self._rows(connection)
                self._window.lose_connection()
                self._breaks += 1
                self._depth = self._most = max(MIN_IN_FLIGHT, self._most // 2)
                if not self._deadline.wait(error):
                    raise
            except BaseException:  # an error, or a canceled task: responses may be outstanding
                connection.close()
                raise
            else:
                self._finish(connection)
        self._losses.log_losses()
        log.info("task read broker=%s ranges=%d %s", self._work.broker_name, len(self._work.ranges), self.statistics())

    def _read(self, connection: PullConnection) -> Iterator[pa.RecordBatch]:
        """Yield rows until everything is read, or the connection breaks."""
        while not self._window.is_finished:
            for response in self._receive(connection):
                self._handle(response)
            if connection.is_full:
                yield from self._rows(connection)
                connection.rewind()
        yield from self._rows(connection)
        connection.rewind()

    def _receive(self, connection: PullConnection) -> list[PullResponse]:
        """Send pulls, and wait for the next responses. Raises ConnectionBroken."""
        try:
            self._send_pulls(connection)
            return list(connection.receive())
        except (OSError, ProtocolError) as error:
            raise ConnectionBroken(f"broker {self._work.broker_name} at {connection.address}: {error}") from error

    # ----------------------------------------------------------------------------------------------------- requests

    def _send_pulls(self, connection: PullConnection) -> None:
        """Fill up the pulls in flight; not after every single response."""
        self._pause_if_needed()
        window = self._window
        if window.in_flight > self._depth // 2:
            return
        frames: list[bytes] = []
        while window.in_flight < self._depth and (slot := window.next_slot()) is not None:
            opaque = connection.next_opaque()
            count = min(self._options.pull_batch, slot.end - slot.at)
            frames.append(self._frames_of(slot.range.queue).frame(slot.at, count, opaque))
            window.mark_sent(opaque, slot)
        if frames:
            self._pulls += len(frames)
            connection.send(b"".join(frames))

    def _pause_if_needed(self) -> None:
        """Pause once for all responses that require one."""
        if self._must_confirm:
            time.sleep(self._options.lookup_interval_ms / 1000)
        if self._busy is not None and not self._deadline.wait(self._busy):
            raise TimeoutError(f"the broker stays busy: {self._busy}")
        self._must_confirm, self._busy = False, None

    def _frames_of(self, queue: MessageQueue) -> PullFrames:
        frames = self._frames.get(queue)
        if frames is None:
            frames = self._frames[queue] = PullFrames(self._options, queue, self._options.credentials)
        return frames

    # ------------------------------------------------------------------------------------------------------ responses

    def _handle(self, response: PullResponse) -> None:
        slot = self._window.take_slot(response.command.opaque)
        if slot is None:
            return
        code = response.command.code
        following = slot.at
        if code in _WITH_NEXT_OFFSET:
            following = response.command.header(PullMessageResponseHeader).next_begin_offset
        found = verdict(code, following, slot, not self._options.takes_everything)
        match found.kind:
            case Kind.TAKEN:
                self._deadline.note_progress()
                self._adapt_depth(response.body[1] - response.body[0])
                self._window.advance(slot, found.upto, response.body)
            case Kind.PASSED:
                self._deadline.note_progress()
                self._window.advance(slot, found.upto)
            case Kind.LOST:
                self._lost(slot, found.upto, found.why)
            case Kind.ENDED | Kind.GONE:
                self._confirm_loss(slot, found.upto, found.why)
            case Kind.BUSY:
                self._window.retry(slot)
                self._busy = response.command.remark or "busy"
            case Kind.REFUSED:
                queue, command = slot.range.queue, response.command
                raise BrokerError.of(
                    RequestCode.PULL_MESSAGE, command.code, command.remark, queue.broker_name, queue.topic
                )

    def _lost(self, slot: Slot, upto: int, why: str) -> None:
        """Record the loss of these offsets; an error covers all offsets that the range loses."""
        self._deadline.note_progress()
        end = min(upto, slot.range.end) if self._options.fail_on_data_loss else min(upto, slot.end)
        self._losses.record(Loss(slot.range.queue, slot.at, end, why))
        self._window.advance(slot, min(upto, slot.end))

    def _confirm_loss(self, slot: Slot, upto: int, why: str) -> None:
        """Record a loss once the broker has reported it several times."""
        if slot.tries < self._options.lookup_retries:
            self._window.retry(slot)
            self._must_confirm = True
        else:
            self._lost(slot, upto, why)

    def _adapt_depth(self, size: int) -> None:
        """Reduce the pulls in flight for large responses, and for a while after a broken connection."""
        self._most = min(self._most + 1, self._limit)
        self._depth = max(MIN_IN_FLIGHT, min(self._most, IN_FLIGHT_BYTES // max(size, 1)))

    # --------------------------------------------------------------------------------------------------------- rows

    def _rows(self, connection: PullConnection) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the complete pieces; nothing refers to the buffer afterwards."""
        pieces = self._window.take()
        view = connection.view
        if pieces:
            buffer = self._in_order(view, pieces)
            starts = self._with_wanted_tags(buffer, self._starts(buffer, pieces))
            if self._filter is not None:
                starts = self._filter.matching(buffer, starts, self._work.broker_name)
            for batch in record_batches(buffer, starts, self._work.broker_name, self._options.columns):
                if batch.num_rows:
                    self._given += batch.num_rows
                    self._batches += 1
                    yield batch
        for piece in self._window.waiting_pieces():
            if isinstance(piece.body, tuple):
                piece.body = bytes(view[slice(*piece.body)])

    def _with_wanted_tags(self, buffer: memoryview, starts: Ints) -> Ints:
        """Return the records with one of the wanted tags, compared as text; usually all records."""
        if self._tags is None:
            return starts
        tags = stored_columns(buffer, starts, ("tags",))["tags"]
        has_tag: NDArray[np.bool_] = pc.is_in(tags, value_set=self._tags).to_numpy(zero_copy_only=False)
        return starts[has_tag]

    def _in_order(self, view: memoryview, pieces: list[Piece]) -> memoryview:
        """Return a buffer in which each range's pieces ascend: the connection's own or a copy."""
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
        """Return the positions of the wanted records."""
        found = [response_record_starts(buffer, piece.body) for piece in pieces]
        if self._options.takes_everything:
            for piece, starts in zip(pieces, found, strict=True):
                if len(starts) != piece.upto - piece.begin:
                    self._record_missing(piece, queue_offsets(buffer, starts))
            return np.concatenate(found)
        ends = np.array([piece.upto for piece in pieces], np.int64)
        starts = np.concatenate(found)
        return starts[queue_offsets(buffer, starts) < ends.repeat([len(each) for each in found])]

    def _record_missing(self, piece: Piece, present: Ints) -> None:
        missing = np.setdiff1d(np.arange(piece.begin, piece.upto), present)
        for gap in np.split(missing, np.flatnonzero(np.diff(missing) != 1) + 1):
            if len(gap):
                self._losses.record(Loss(piece.range.queue, int(gap[0]), int(gap[-1]) + 1, DELETED))

    # -------------------------------------------------------------------------------------------------- connections

    def _connected(self) -> PullConnection:
        """Return a connection to the broker at its current address."""
        address = self._work.address
        while True:
            try:
                address = address or run(broker_address(self._options, self._work.broker_name))
                kept = _idle.pop(self._key(address), None) if self._keep_connection else None
                return kept or self._opened(address)
            except _RETRIED_ERRORS as error:
                address = None
                if not self._deadline.wait(error):
                    raise

    def _finish(self, connection: PullConnection) -> None:
        """Keep a connection without outstanding responses for the next task, or close it."""
        if self._keep_connection:
            _idle[self._key(connection.address)] = connection
        else:
            connection.close()

    def _opened(self, address: str) -> PullConnection:
        return PullConnection(address, self._options.tls, self._options.pull_timeout_ms / 1000)

    def _key(self, address: str) -> tuple[str, TlsSettings | None]:
        return address, self._options.tls


_WITH_NEXT_OFFSET: Final = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


def response_record_starts(buffer: memoryview, position: tuple[int, int] | bytes) -> Ints:
    """Return the positions of a response's records. Raises ProtocolError if they do not fill the body."""
    assert isinstance(position, tuple)
    begin, end = position
    starts = record_starts(buffer, begin, end)
    reached = begin
    if len(starts):
        last = int(starts[-1])
        reached = last + _SIZE(buffer, last)[0]
    if reached != end:
        raise ProtocolError(f"a response has no record {end - reached} bytes before its end")
    return starts


def is_ordered(pieces: Sequence[Piece]) -> bool:
    """Return whether the positions of each range's pieces ascend like their offsets."""
    last: dict[Range, int] = {}
    for piece in pieces:
        begin = piece.body[0]
        assert isinstance(begin, int)
        if begin < last.get(piece.range, 0):
            return False
        last[piece.range] = begin
    return True


def bytes_of(view: memoryview, piece: Piece) -> memoryview | bytes:
    """Return a piece's body, from the buffer or from its copy."""
    return view[slice(*piece.body)] if isinstance(piece.body, tuple) else piece.body
