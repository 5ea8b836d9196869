"""Effect of a greedy client, held by its quota, on the latency of a normal one.

    python -m tests.bench.bench_quota                         # 5 rounds of 3 s
    python -m tests.bench.bench_quota --rounds 10 --set flushDiskType=SYNC_FLUSH

The broker runs on one processor, all clients on another one. First a greedy client alone measures the broker's
capacity in sends of 1 KiB per second. Then the rounds alternate between two neighbors of a normal client, which sends
one message at a time, 200 per second:

    unthrottled   a client that sends a tenth of the capacity on its own, in steps of a millisecond; no quota
    held          the greedy client, 256 sends in flight, with a quota of a tenth of the capacity

Printed for each round: the normal client's latencies (counted from the time at which a send was due), the sends of the
neighbor, and the broker's CPU. Budget: the median of the ratios of p99 within a round is at most 3. The two clients
have different addresses, 127.0.0.1 and 127.0.0.2, since a quota is one of an address; request 25 changes it between the
rounds.
"""

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.serialize import encode_command
from tests.bench.bench_send import BrokerProcess, call, create_topic, send_frame

BODY: Final = b"x" * 1024
QUEUES: Final = 4
IN_FLIGHT: Final = 256
NORMAL_EVERY_S: Final = 0.005
STEP_S: Final = 0.001
SETTLE_S: Final = 0.3
CAPACITY_S: Final = 2.0
GREEDY_HOST: Final = "127.0.0.2"
NORMAL_HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 10.0

Figures = dict[str, float]
Client = Callable[[int, float, float, Pipe], None]
"""`(port, rate per second, deadline, pipe)`"""


def main() -> None:
    """Run the rounds and print the figures."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-quota-", dir=options.directory) as directory:
        broker = BrokerProcess(Path(directory), dict(pair.split("=", 1) for pair in options.set))
        try:
            os.sched_setaffinity(broker.pid, {options.broker_cpu})
            figures = measure(broker, options)
        finally:
            broker.stop()
    if options.json:
        print(json.dumps(figures))
        return
    for row in figures["rounds"]:
        print("  ".join(f"{name} {value:,.2f}" for name, value in row.items()))
    print(f"capacity {figures['capacity']:,.0f}/s  quota {figures['quota']:,.0f}/s")
    print(f"median of p99 held / p99 unthrottled: {figures['ratio']:.2f} (budget 3)")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--broker-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--directory", help="directory of the temporary store")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


def measure(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the capacity, then run the rounds."""
    os.sched_setaffinity(0, {options.client_cpu})
    call(broker.port, create_topic(QUEUES))
    capacity = run(broker.port, CAPACITY_S, greedy, 0)["sends"] / CAPACITY_S
    quota = int(capacity / 10)
    rounds: list[Figures] = []
    for _ in range(options.rounds):
        set_quota(broker.port, 0)
        beside = measured(broker, options.seconds, paced, quota)
        set_quota(broker.port, quota)
        held = measured(broker, options.seconds, greedy, 0)
        rounds.append(
            {f"unthrottled_{name}": value for name, value in beside.items()}
            | {f"held_{name}": value for name, value in held.items()}
            | {"ratio": held["p99_ms"] / beside["p99_ms"]}
        )
    return {
        "capacity": capacity,
        "quota": quota,
        "rounds": rounds,
        "ratio": median(row["ratio"] for row in rounds),
    }


def set_quota(port: int, quota: int) -> None:
    """Set the quota of each address, and wait until the broker is idle."""
    command = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"quotaClientRequestsPerSecond=%d" % quota)
    response = call(port, encode_command(command))
    if response["code"] != 0:
        raise SystemExit(f"the quota was not set: {response}")
    time.sleep(SETTLE_S)


def measured(broker: BrokerProcess, seconds: float, neighbor: Client, rate: float) -> Figures:
    """Run the normal client and its neighbor; return their figures, and the broker's share of its processor."""
    cpu_s = broker.cpu_s()
    figures = run(broker.port, seconds, neighbor, rate, normal)
    return figures | {"cpu_percent": (broker.cpu_s() - cpu_s) / seconds * 100}


def run(port: int, seconds: float, neighbor: Client, rate: float, *others: Client) -> Figures:
    """Run clients in processes of their own for some time; return their figures together."""
    deadline = time.monotonic() + seconds
    started = []
    for client in (neighbor, *others):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=client, args=(port, rate, deadline, theirs))
        process.start()
        started.append((process, ours))
    figures: Figures = {}
    for process, pipe in started:
        if not pipe.poll(seconds + TIMEOUT_S):
            raise SystemExit("a client does not end")
        figures |= pipe.recv()
        process.join()
    return figures


# -------------------------------------------------------------------------------------------------------------- clients


class Sender:
    """A connection that sends prepared messages and counts responses."""

    def __init__(self, port: int, host: str) -> None:
        self.socket = socket.create_connection((NORMAL_HOST, port), TIMEOUT_S, (host, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = [send_frame(number, number % QUEUES, BODY, JSON) for number in range(IN_FLIGHT)]
        self._size = len(frames[-1])
        self._block = memoryview(b"".join(frame for frame in frames if len(frame) == self._size))
        self._most = len(self._block) // self._size
        self._rest = b""
        self.responses = 0
        self.errors = 0

    def send(self, count: int) -> None:
        """Send messages."""
        for at in range(0, count, self._most):
            self.socket.sendall(self._block[: min(count - at, self._most) * self._size])

    def receive(self) -> int:
        """Wait for responses; return how many arrived."""
        return self.count(self.socket.recv(262_144))

    def count(self, data: bytes) -> int:
        """Return the number of responses that are complete with this data."""
        data = self._rest + data
        at = count = 0
        while len(data) - at >= 4 and (end := at + 4 + int.from_bytes(data[at : at + 4], "big")) <= len(data):
            self.errors += b'"code":0,' not in data[at + 8 : at + 24]
            at, count = end, count + 1
        self._rest = data[at:]
        self.responses += count
        return count


def greedy(port: int, _rate: float, deadline: float, pipe: Pipe) -> None:
    """Keep IN_FLIGHT sends in flight."""
    sender = Sender(port, GREEDY_HOST)
    sender.send(IN_FLIGHT)
    while time.monotonic() < deadline:
        sender.send(sender.receive())
    pipe.send({"sends": sender.responses, "errors": sender.errors})


def paced(port: int, rate: float, deadline: float, pipe: Pipe) -> None:
    """Send at a rate, and read responses as they arrive."""
    sender = Sender(port, GREEDY_HOST)
    sender.socket.setblocking(False)
    began, sent = time.monotonic(), 0
    while (now := time.monotonic()) < deadline:
        due = int((now - began) * rate) - sent
        if due:
            sender.socket.setblocking(True)
            sender.send(due)
            sender.socket.setblocking(False)
            sent += due
        try:
            sender.receive()
        except BlockingIOError:
            pass
        time.sleep(STEP_S)
    pipe.send({"sends": sender.responses, "errors": sender.errors})


def normal(port: int, _rate: float, deadline: float, pipe: Pipe) -> None:
    """Send one message at a time; latencies count from the time at which a message was due."""
    time.sleep(SETTLE_S)
    sender = Sender(port, NORMAL_HOST)
    waits_ms = []
    due = time.monotonic()
    while due < deadline:
        time.sleep(max(due - time.monotonic(), 0))
        sender.send(1)
        while not sender.receive():
            pass
        waits_ms.append((time.monotonic() - due) * 1000)
        due = max(due + NORMAL_EVERY_S, time.monotonic() - TIMEOUT_S)
    cuts = quantiles(waits_ms, n=100)
    pipe.send({"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(waits_ms), "normal_errors": sender.errors})


if __name__ == "__main__":
    main()
