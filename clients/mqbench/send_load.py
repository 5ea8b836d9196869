"""Many sends in flight on each connection: as many as the workload allows, or as many as a fixed rate needs.

A connection cycles through its block of prepared frames. If the next frame is still in flight, the connection waits for
its response. The block has several times as many frames as may be in flight, so this happens only if a response is far
out of order.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.in_flight import InFlight
from skylarkmq.clients.mqbench.loop import Loop
from skylarkmq.clients.mqbench.prepared_frames import Block, Target
from skylarkmq.clients.mqbench.recorder import Figures, OnInterval, Recorder, ignore_interval
from skylarkmq.clients.mqbench.response_counter import ResponseCounter
from skylarkmq.clients.mqbench.schedule import Schedule
from skylarkmq.clients.mqbench.sockets import connect_nonblocking
from skylarkmq.clients.mqbench.workloads import Workload

READ_BYTES: Final = 256 * 1024
FRAMES_PER_FLIGHT: Final = 4
MOST_FRAMES: Final = 10_000
MOST_BLOCK_BYTES: Final = 64 << 20
UNBOUNDED: Final = 1 << 62
DRAIN_NS: Final = 3_000_000_000

AtEdge = Callable[[], None]


def do_nothing() -> None:
    """Do nothing at the begin and end of the measurement."""


class SendConnection:
    """One connection's sends: at full speed, or by a schedule."""

    def __init__(self, connected: socket.socket, block: Block, in_flight: int, recorder: Recorder) -> None:
        self.socket = connected
        self.schedule: Schedule | None = None
        self.left = UNBOUNDED  # requests that may still be sent
        self.outstanding = 0
        self.responses = ResponseCounter()
        self.unmatched = 0  # responses that match no request
        self._block = block
        self._in_flight = in_flight
        self._recorder = recorder
        self._next = self._round = 0
        self._unwritten: list[memoryview] = []
        self._flights = InFlight(block.frames, block.opaque_step)

    def __repr__(self) -> str:
        return f"<SendConnection {self.outstanding} in flight>"

    @property
    def blocked(self) -> bool:
        return bool(self._unwritten)

    @property
    def due_ns(self) -> int | None:
        if self.schedule is None or self.outstanding >= self._in_flight or not self.left:
            return None
        return self.schedule.next_due_ns()

    def pump(self, now_ns: int) -> None:
        capacity = min(self._in_flight - self.outstanding, self.left)
        if self.schedule is not None:
            capacity = min(capacity, self.schedule.due(now_ns))
        while capacity > 0:
            sent = self._send(capacity, now_ns)
            if not sent:
                return
            capacity -= sent

    def readable(self) -> None:
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return  # a part of a TLS record
        now_ns = time.perf_counter_ns()
        if not data:
            raise ConnectionError(f"{self.socket.getpeername()} closed the connection")
        refusals = self.responses.refusals
        opaques = self.responses.feed(data)
        taken_ns = self._flights.match(opaques, now_ns)
        self.unmatched += len(opaques) - len(taken_ns)
        self.outstanding -= len(taken_ns)
        accepted = len(taken_ns) - (self.responses.refusals - refusals)
        self._recorder.record(now_ns, taken_ns, accepted * self._block.batch)

    def writable(self) -> None:
        unwritten = self._unwritten
        while unwritten:
            try:
                taken = self.socket.send(unwritten[0])
            except BlockingIOError:
                return
            if taken < len(unwritten[0]):
                unwritten[0] = unwritten[0][taken:]
                return
            unwritten.pop(0)

    def _send(self, count: int, now_ns: int) -> int:
        """Send up to `count` consecutive frames; return their number."""
        first, block = self._next, self._block
        end = self._flights.free_end(first, min(first + count, block.frames))
        count = end - first
        if not count:
            return 0
        opaque = block.patch(first, end, self._round, time.time_ns() // 1_000_000)
        self._flights.mark_sent(first, end, opaque, now_ns if self.schedule is None else self.schedule.take(count))
        self.outstanding += count
        self.left -= count
        self._next = end
        if end == block.frames:
            self._next = 0
            self._round += 1
        self._unwritten.append(block.bytes_of(first, end))
        if len(self._unwritten) == 1:
            self.writable()
        return count


class SendLoad:
    """A workload's sends from this process; `part` distinguishes its blocks from the blocks of other processes."""

    def __init__(self, workload: Workload, brokers: list[Broker], on_interval: OnInterval = ignore_interval) -> None:
        self._workload = workload
        self.recorder = Recorder(on_interval)
        self.connections = []
        self._loop = Loop()
        for number in range(workload.connections):
            broker = brokers[number % len(brokers)]
            block = self._block(number, broker)
            connection = SendConnection(connect_nonblocking(broker), block, workload.in_flight, self.recorder)
            self.connections.append(connection)
            self._loop.add(connection)

    def __repr__(self) -> str:
        return f"<SendLoad {len(self.connections)} connections {self.recorder!r}>"

    def run(self, at_edge: AtEdge = do_nothing) -> Figures:
        """Warm up, measure, wait for the requests in flight.

        `at_edge` is called at the begin and end of the measurement.
        """
        workload, recorder = self._workload, self.recorder
        if workload.rate is not None:
            self._start_schedules(workload.rate / workload.batch / workload.connections)
        self._loop.run(after(workload.warmup_s))
        at_edge()
        cpu_s = time.process_time()
        recorder.begin(time.perf_counter_ns())
        self._loop.run(after(workload.seconds))
        recorder.end(time.perf_counter_ns())
        cpu_s = time.process_time() - cpu_s
        at_edge()
        self._loop.run(time.perf_counter_ns() + DRAIN_NS, pumping=False)
        return self._figures(cpu_s)

    def send_exactly(self, messages: int) -> Figures:
        """Send `messages` messages at full speed, and measure from the first send to the last response."""
        requests = -(-messages // self._workload.batch)
        for number, connection in enumerate(self.connections):
            connection.left = (requests + number) // len(self.connections)
        cpu_s = time.process_time()
        self.recorder.begin(time.perf_counter_ns())
        self._loop.run(UNBOUNDED)
        self.recorder.end(time.perf_counter_ns())
        return self._figures(time.process_time() - cpu_s)

    def close(self) -> None:
        """Close the connections."""
        self._loop.close()

    def _figures(self, cpu_s: float) -> Figures:
        recorder = self.recorder
        refused = sum((connection.responses.refused for connection in self.connections), Counter[int]())
        return Figures(
            seconds=(recorder.ended_ns - recorder.begun_ns) / 1e9,
            requests=recorder.requests,
            messages=recorder.messages,
            body_bytes=recorder.messages * self._workload.size,
            latency=recorder.histogram,
            timeline=recorder.timeline,
            loader_cpu_s=cpu_s,
            refused=dict(refused),
            remark=next(
                (connection.responses.remark for connection in self.connections if connection.responses.remark), ""
            ),
        )

    def _block(self, number: int, broker: Broker) -> Block:
        workload = self._workload
        targets = targets_of(workload, broker, number)
        at_least = max(FRAMES_PER_FLIGHT * workload.in_flight, 64)
        rounds = -(-at_least // len(targets))
        frames = min(len(targets) * rounds, max(MOST_FRAMES, at_least))
        frames = min(frames, max(workload.in_flight, MOST_BLOCK_BYTES // (workload.batch * (workload.size + 400))))
        block = os.getpid() * 64 + number & 0xFFFF
        return Block(block, targets, frames, workload.size, workload.batch, broker.credentials)

    def _start_schedules(self, rate: float) -> None:
        """Start schedules of `rate` requests per second in total, evenly staggered over the connections."""
        now_ns = time.perf_counter_ns()
        for number, connection in enumerate(self.connections):
            connection.schedule = Schedule(rate, now_ns + int(number / len(self.connections) / rate * 1e9))


def targets_of(workload: Workload, broker: Broker, number: int) -> list[Target]:
    """Return the queues of a connection: all, with different starts per connection; a share if there are very many."""
    targets = [
        Target(topic, queue_id, broker.name) for queue_id in range(workload.queues) for topic in workload.topic_names()
    ]
    if len(targets) > MOST_FRAMES // 4:
        return targets[number :: workload.connections]
    at = number * len(targets) // workload.connections
    return targets[at:] + targets[:at]


def after(seconds: float) -> int:
    """Return the time in ns that is `seconds` from now."""
    return time.perf_counter_ns() + int(seconds * 1e9)
