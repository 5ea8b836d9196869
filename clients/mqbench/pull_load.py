"""Queues read like a consumer reads them: one pull in flight per queue, each with a maximum number of messages.

Every pull carries its own subscription (`*`), so no group is joined and no offset committed: reading changes nothing,
and a backlog can be read repeatedly. `Ending` determines what happens at the end of a queue: stop, begin again at the
first message, or wait for the next one (long polling). Messages are counted by the offsets in the responses, which
without a filter equals the number of messages in the bodies. With FOLLOW, the born time of each message is read, too.
Source: docs/reference/wire.md, "Pull".
"""

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final

import msgspec
import numpy as np

from skylarkmq.clients.mqbench.clusters import Bounds, Broker
from skylarkmq.clients.mqbench.histogram import Histogram
from skylarkmq.clients.mqbench.loop import Loop
from skylarkmq.clients.mqbench.prepared_frames import FIRST_OPAQUE, GROUP
from skylarkmq.clients.mqbench.recorder import Figures, OnInterval, Recorder, ignore_interval
from skylarkmq.clients.mqbench.send_load import UNBOUNDED, AtEdge, after, do_nothing
from skylarkmq.clients.mqbench.signed_frames import BEGIN_OF_SIGNATURE, SIGNATURE_BYTES, sign
from skylarkmq.clients.mqbench.sockets import connect_nonblocking
from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.signature import SigningKey, content_of

BUFFER_BYTES: Final = 1 << 20
MAX_READS_PER_ITERATION: Final = 8  # reads per iteration
SUSPEND_MS: Final = 15_000
OFFSET_PLACE: Final = 8_999_999_999_999_999_999
NOTHING_THERE: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
PAUSE_NS: Final = 1_000_000

OPAQUE_IN: Final = re.compile(rb'"opaque":(\d+)')
CODE_IN: Final = re.compile(rb'"code":(\d+)')
NEXT_IN: Final = re.compile(rb'"nextBeginOffset":"?(\d+)')
REMARK_IN: Final = re.compile(rb'"remark":"((?:[^"\\]|\\.)*)')

SIZE: Final = Struct(">i")
BORN: Final = Struct(">q")
BORN_AT: Final = 40  # docs/reference/disk.md, "CommitLog record"


class Ending(Enum):
    """What happens at the end of a queue."""

    STOP = "stop"
    AGAIN = "again"
    FOLLOW = "follow"


class Queue(msgspec.Struct):
    """A queue that is read."""

    bounds: Bounds
    pulls: "PullRequests"
    offset: int
    asked_ns: int = 0
    is_outstanding: bool = False  # a response is outstanding
    done: bool = False
    not_before_ns: int = 0


class PullConnection:
    """One connection's queues."""

    def __init__(
        self, connected: socket.socket, bounds: list[Bounds], pull: int, ending: Ending, out: Recorder
    ) -> None:
        self.socket = connected
        self.outstanding = 0
        self.body_bytes = 0
        self.refused: Counter[int] = Counter()
        self.remark = ""
        self.end_to_end = Histogram()
        self._ending = ending
        self._recorder = out
        follows = ending is Ending.FOLLOW
        self._queues = [
            Queue(queue, PullRequests(queue, pull, follows), queue.end if follows else queue.first) for queue in bounds
        ]
        for queue in self._queues:
            queue.done = not follows and queue.bounds.first >= queue.bounds.end
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._unwritten = b""

    def __repr__(self) -> str:
        return f"<PullConnection {len(self._queues)} queues>"

    @property
    def blocked(self) -> bool:
        return bool(self._unwritten)

    @property
    def due_ns(self) -> int | None:
        return min((queue.not_before_ns for queue in self._idle()), default=None)

    def pump(self, now_ns: int) -> None:
        frames = []
        for number, queue in enumerate(self._queues):
            if queue.is_outstanding or queue.done or queue.not_before_ns > now_ns:
                continue
            queue.is_outstanding, queue.asked_ns = True, now_ns
            frames.append(queue.pulls.frame(queue.offset, FIRST_OPAQUE + number))
        if frames:
            self.outstanding += len(frames)
            self._unwritten += b"".join(frames)
            self.writable()

    def readable(self) -> None:
        for _ in range(MAX_READS_PER_ITERATION):
            try:
                count = self.socket.recv_into(self._view[self._filled :])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionError("the broker closed the connection")
            self._filled += count
            self._handle_responses()
            if self.outstanding < len(self._queues):
                return

    def writable(self) -> None:
        try:
            taken = self.socket.send(self._unwritten)
        except BlockingIOError:
            return
        self._unwritten = self._unwritten[taken:]

    def _idle(self) -> Iterator[Queue]:
        return (queue for queue in self._queues if not queue.is_outstanding and not queue.done)

    def _handle_responses(self) -> None:
        at, filled, view = 0, self._filled, self._view
        needed = 0
        while filled - at >= 8:
            (size,) = SIZE.unpack_from(view, at)
            needed = size + 4
            if filled - at < needed:
                break
            header_end = at + 8 + (SIZE.unpack_from(view, at + 4)[0] & 0xFFFFFF)
            self._handle_response(bytes(view[at + 8 : header_end]), header_end, at + needed)
            at += needed
        if at:
            rest = bytes(view[at:filled])
            view[: len(rest)] = rest
            self._filled = len(rest)
        if needed > len(view):
            self._buffer = self._buffer[: self._filled].ljust(needed, b"\0")
            self._view = memoryview(self._buffer)

    def _handle_response(self, header: bytes, body_at: int, body_end: int) -> None:
        now_ns = time.perf_counter_ns()
        opaque, code = number_in(OPAQUE_IN, header), number_in(CODE_IN, header)
        queue = self._queues[opaque - FIRST_OPAQUE]
        queue.is_outstanding = False
        self.outstanding -= 1
        if code == ResponseCode.SUCCESS:
            following = number_in(NEXT_IN, header)
            self.body_bytes += body_end - body_at
            if self._ending is Ending.FOLLOW:
                self._record_ages(body_at, body_end)
            latency = np.array([now_ns - queue.asked_ns], np.int64)
            self._recorder.record(now_ns, latency, following - queue.offset)
            queue.offset = following
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            queue.offset = number_in(NEXT_IN, header)
            queue.not_before_ns = now_ns + PAUSE_NS
        elif code not in NOTHING_THERE:
            self.refused[code] += 1
            found = REMARK_IN.search(header)
            self.remark = self.remark or (found[1].decode(errors="replace") if found else "")
            queue.not_before_ns = now_ns + PAUSE_NS
        if self._ending is not Ending.FOLLOW and queue.offset >= queue.bounds.end:
            queue.done = self._ending is Ending.STOP
            queue.offset = queue.bounds.first

    def _record_ages(self, at: int, end: int) -> None:
        """Record the ages of the messages of a body."""
        now_ms = time.time() * 1000
        ages, view = [], self._view
        while at < end:
            ages.append(now_ms - BORN.unpack_from(view, at + BORN_AT)[0])
            at += SIZE.unpack_from(view, at)[0]
        self.end_to_end.add((np.array(ages) * 1e6).astype(np.int64))


class PullLoad:
    """A workload's queues, read over the connections of this process."""

    def __init__(
        self, workload: Workload, bounds: list[Bounds], ending: Ending, on_interval: OnInterval = ignore_interval
    ) -> None:
        self._workload = workload
        self.recorder = Recorder(on_interval)
        self.connections = []
        self._loop = Loop()
        for broker, share in shares(bounds, workload.connections):
            to_broker = connect_nonblocking(broker, BUFFER_BYTES)
            connection = PullConnection(to_broker, share, workload.pull, ending, self.recorder)
            self.connections.append(connection)
            self._loop.add(connection)

    def __repr__(self) -> str:
        return f"<PullLoad {len(self.connections)} connections {self.recorder!r}>"

    def run(self, at_edge: AtEdge = do_nothing) -> Figures:
        """Warm up, then measure until the time is over; `at_edge` is called at the begin and end of the measurement."""
        self._loop.run(after(self._workload.warmup_s))
        return self._measure(after(self._workload.seconds), at_edge)

    def read_all(self) -> Figures:
        """Read until every queue has ended."""
        return self._measure(UNBOUNDED, do_nothing)

    def close(self) -> None:
        """Close the connections."""
        self._loop.close()

    def _measure(self, until_ns: int, at_edge: AtEdge) -> Figures:
        recorder = self.recorder
        at_edge()
        cpu_s, body_bytes = time.process_time(), self._body_bytes()
        for connection in self.connections:
            connection.end_to_end = Histogram()
        recorder.begin(time.perf_counter_ns())
        self._loop.run(until_ns)
        recorder.end(time.perf_counter_ns())
        cpu_s = time.process_time() - cpu_s
        at_edge()
        end_to_end = Histogram()
        for connection in self.connections:
            end_to_end.merge(connection.end_to_end)
        return Figures(
            seconds=(recorder.ended_ns - recorder.begun_ns) / 1e9,
            requests=recorder.requests,
            messages=recorder.messages,
            body_bytes=self._body_bytes() - body_bytes,
            latency=recorder.histogram,
            timeline=recorder.timeline,
            loader_cpu_s=cpu_s,
            refused=dict(sum((connection.refused for connection in self.connections), Counter[int]())),
            remark=next((connection.remark for connection in self.connections if connection.remark), ""),
            end_to_end=end_to_end if end_to_end.count else None,
        )

    def _body_bytes(self) -> int:
        return sum(connection.body_bytes for connection in self.connections)


def shares(bounds: list[Bounds], connections: int) -> list[tuple[Broker, list[Bounds]]]:
    """Distribute each broker's queues to `connections` connections; connections without queues are omitted."""
    by_broker: dict[Broker, list[Bounds]] = {}
    for queue in bounds:
        by_broker.setdefault(queue.broker, []).append(queue)
    return [
        (broker, queues[number::connections])
        for broker, queues in by_broker.items()
        for number in range(min(connections, len(queues)))
    ]


class PullRequests:
    """The pulls of a queue, as frames. The header is encoded once, with placeholders for offset, signature and opaque;
    the credentials of the queue's broker sign each pull."""

    def __init__(self, queue: Bounds, most: int, follows: bool) -> None:
        header = PullMessageHeader(
            consumer_group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=OFFSET_PLACE,
            max_msg_nums=most,
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if follows else 0),
            commit_offset=0,
            suspend_timeout_millis=SUSPEND_MS,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            bname=queue.broker.name,
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        command.language = "JAVA"
        credentials = queue.broker.credentials
        sign(command, credentials)
        self._key = None if credentials is None else SigningKey(credentials.secret_key)
        self._values = with_offset(content_of(command.ext_fields()))
        text = with_offset(encode_command(command)[8:]).replace(b'"opaque":0,', b'"opaque":%d,')
        if self._key is not None:
            at = text.index(BEGIN_OF_SIGNATURE) + len(BEGIN_OF_SIGNATURE)
            text = text[:at] + b"%b" + text[at + SIGNATURE_BYTES :]
        self._template = text

    def __repr__(self) -> str:
        return f"<PullRequests {len(self._template)} bytes>"

    def frame(self, offset: int, opaque: int) -> bytes:
        """Return the pull from an offset."""
        if self._key is None:
            return framed(self._template % (offset, opaque))
        signature = self._key.sign(self._values % offset, b"")
        return framed(self._template % (offset, signature.encode(), opaque))


def with_offset(text: bytes) -> bytes:
    """Return a %-template of a text with a placeholder for the offset."""
    return text.replace(b"%", b"%%").replace(b"%d" % OFFSET_PLACE, b"%d")


def framed(header: bytes) -> bytes:
    """Return a JSON header without a body as a frame."""
    return SIZE.pack(4 + len(header)) + SIZE.pack(len(header)) + header


def number_in(pattern: re.Pattern[bytes], header: bytes) -> int:
    """Return the number that a pattern finds; -1 if it finds none."""
    found = pattern.search(header)
    return int(found[1]) if found else -1
