"""One send in flight: the latency that a single caller observes.

The loader must add as little as possible, so the socket blocks, and the next frame is patched after the clock was read.
There is one block of frames that cycles over the queues; the response is the next frame that arrives.
"""

import time
from collections import Counter
from typing import Final

import numpy as np

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.prepared_frames import Block
from skylarkmq.clients.mqbench.recorder import Figures, OnInterval, Recorder, ignore_interval
from skylarkmq.clients.mqbench.response_counter import ResponseCounter
from skylarkmq.clients.mqbench.send_load import AtEdge, after, do_nothing, targets_of
from skylarkmq.clients.mqbench.sockets import connect
from skylarkmq.clients.mqbench.workloads import Workload

FRAMES: Final = 100
READ_BYTES: Final = 64 * 1024
ANSWER_LIMIT_S: Final = 30.0
RECORD_AT: Final = 64


class SingleSendLoad:
    """One connection, on which each send waits for the response to the previous one."""

    def __init__(self, workload: Workload, broker: Broker, on_interval: OnInterval = ignore_interval) -> None:
        self._workload = workload
        self._recorder = Recorder(on_interval)
        self._responses = ResponseCounter()
        self._socket = connect(broker, ANSWER_LIMIT_S)
        targets = targets_of(workload, broker, 0)
        self._block = Block(1, targets, FRAMES, workload.size, workload.batch, broker.credentials)
        self._sent = 0

    def __repr__(self) -> str:
        return f"<SingleSendLoad {self._sent} sent>"

    def run(self, at_edge: AtEdge = do_nothing) -> Figures:
        """Warm up, then measure; `at_edge` is called at the begin and end of the measurement."""
        self._send_until(after(self._workload.warmup_s))
        at_edge()
        cpu_s = time.process_time()
        self._recorder.begin(time.perf_counter_ns())
        self._send_until(after(self._workload.seconds))
        self._recorder.end(time.perf_counter_ns())
        cpu_s = time.process_time() - cpu_s
        at_edge()
        recorder = self._recorder
        return Figures(
            seconds=(recorder.ended_ns - recorder.begun_ns) / 1e9,
            requests=recorder.requests,
            messages=recorder.messages,
            body_bytes=recorder.messages * self._workload.size,
            latency=recorder.histogram,
            timeline=recorder.timeline,
            loader_cpu_s=cpu_s,
            refused=dict(Counter(self._responses.refused)),
            remark=self._responses.remark,
        )

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send_until(self, until_ns: int) -> None:
        connected, block, feed, clock = self._socket, self._block, self._responses.feed, time.perf_counter_ns
        taken: list[int] = []
        now_ns = 0
        while now_ns < until_ns:
            round_, frame = divmod(self._sent, FRAMES)
            block.patch(frame, frame + 1, round_, time.time_ns() // 1_000_000)
            data = block.bytes_of(frame, frame + 1)
            begun_ns = clock()
            connected.sendall(data)
            response = connected.recv(READ_BYTES)
            now_ns = clock()
            while not len(feed(response)):
                response = connected.recv(READ_BYTES)
                now_ns = clock()
                if not response:
                    raise ConnectionError("the broker closed the connection")
            self._sent += 1
            taken.append(now_ns - begun_ns)
            if len(taken) == RECORD_AT:
                self._record(now_ns, taken)
        self._record(now_ns, taken)

    def _record(self, now_ns: int, taken: list[int]) -> None:
        self._recorder.record(now_ns, np.array(taken, np.int64), len(taken) * self._workload.batch)
        taken.clear()
