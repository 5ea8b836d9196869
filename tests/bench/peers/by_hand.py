"""A producer that makes the copies itself: it sends each message to several brokers, and waits for all of them.

That is what synced copies of a message cost on a machine without any replication, beside which the p50 of a group can
be judged: its processors and its disk serve all brokers of the group.
"""

import gc
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.prepared_frames import Block
from skylarkmq.clients.mqbench.send_load import targets_of
from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command

FRAMES: Final = 2048
RECEIVE_BYTES: Final = 64 << 10


def p50_by_hand_us(workload: Workload, brokers: Sequence[Broker]) -> float:
    """Return the median time from the first send of a message to the last response, in microseconds."""
    block = Block(1, targets_of(workload, brokers[0], 0), FRAMES, workload.size)
    frames = [bytes(block.bytes_of(number, number + 1)) for number in range(FRAMES)]
    with ExitStack() as stack:
        sockets = [stack.enter_context(_connected(broker)) for broker in brokers]
        _sent_times_us(sockets, frames, workload.warmup_s)
        return median(_sent_times_us(sockets, frames, workload.seconds))


def _connected(broker: Broker) -> socket.socket:
    host, port = broker.address.rsplit(":", 1)
    connected = socket.create_connection((host, int(port)))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _sent_times_us(sockets: Sequence[socket.socket], frames: Sequence[bytes], seconds: float) -> list[float]:
    taken: list[float] = []
    decoders = [FrameDecoder() for _ in sockets]
    end = time.perf_counter() + seconds
    gc.disable()
    try:
        while (begun := time.perf_counter()) < end:
            for one in sockets:
                one.sendall(frames[len(taken) % FRAMES])
            responses = [_receive(*pair) for pair in zip(sockets, decoders, strict=True)]
            taken.append((time.perf_counter() - begun) * 1e6)
            if any(response is None or response.code for response in responses):
                raise RuntimeError(f"a send was refused: {responses}")
    finally:
        gc.enable()
    return taken


def _receive(connected: socket.socket, decoder: FrameDecoder) -> RemotingCommand | None:
    """Return the response to the only request. Raises ConnectionError if there is none."""
    while piece := connected.recv(RECEIVE_BYTES):
        for frame in decoder.feed(memoryview(piece)):
            return decode_command(frame)
    raise ConnectionError("the broker closed the connection")
