"""A steady stream of messages into one queue, and its consumer: shared by the benchmarks of delays.

Frames are encoded in advance and sent every TICK_S; a slow machine sends late. CPU is user + system time of the broker
(/proc) for everything: send, delivery, pulls.
"""

import argparse
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode
from skylarkmq.protocol.serialize import encode_command
from tests.bench.bench_send import BrokerProcess
from tests.harness.raw import RawClient

TICK_S: Final = 0.01
TOPIC: Final = "BenchDelay"
PULL: Final[dict[str, object]] = {
    "consumerGroup": "bench-delay", "queueId": 0, "maxMsgNums": 32, "commitOffset": 0, "sysFlag": 6, "subVersion": 1,
    "subscription": "*", "suspendTimeoutMillis": 1_000,
}  # fmt: skip


def arguments(story: str | None) -> argparse.ArgumentParser:
    """Return the parser with the common arguments."""
    parser = argparse.ArgumentParser(description=story, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=5_000, help="messages per second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--directory", help="directory of the temporary store")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser


def show(figures: Mapping[str, object], options: argparse.Namespace) -> None:
    """Print the figures."""
    print(json.dumps(figures) if options.json else "\n".join(f"{name:36} {value}" for name, value in figures.items()))


class Stream:
    """A stream of messages at a fixed rate, with its consumer. Without `levels`, no message is delayed."""

    def __init__(self, broker: BrokerProcess, options: argparse.Namespace, levels: Sequence[int]) -> None:
        self._broker = broker
        self._options = options
        self._levels = levels
        self.sent = int(options.rate * options.seconds)
        self.received: list[tuple[MessageExt, float]] = []

    def run(self, offset: int) -> dict[str, object]:
        """Send all messages, and wait until all are received; the topic's queue has `offset` messages before."""
        consumer = threading.Thread(target=self._receive, args=(offset,))
        cpu_s = self._broker.cpu_s()
        consumer.start()
        began = time.monotonic()
        late_s = self._send()
        took_s = time.monotonic() - began
        consumer.join()
        cpu_s = self._broker.cpu_s() - cpu_s
        kind = "delayed" if self._levels else "plain"
        return {
            f"{kind}_messages": self.sent,
            f"{kind}_messages_per_second": round(self.sent / took_s),
            f"{kind}_sender_late_ms": round(late_s * 1000, 1),
            f"cpu_us_per_{kind}_message": round(cpu_s / self.sent * 1e6, 2),
        }

    def _send(self) -> float:
        """Send at the rate; return the largest delay against the schedule, in seconds."""
        per_tick = max(1, round(self._options.rate * TICK_S))
        frames = list(self._frames())
        with socket.create_connection(("127.0.0.1", self._broker.port)) as connection:
            reader = threading.Thread(target=drain, args=(connection, self.sent))
            reader.start()
            began, late_s = time.monotonic(), 0.0
            for tick, at in enumerate(range(0, len(frames), per_tick)):
                wait_s = began + tick * TICK_S - time.monotonic()
                late_s = max(late_s, -wait_s)
                if wait_s > 0:
                    time.sleep(wait_s)
                connection.sendall(b"".join(frames[at : at + per_tick]))
            reader.join()
        return late_s

    def _frames(self) -> Iterator[bytes]:
        filler = os.urandom(self._options.body // 2).hex().encode()
        for n in range(self.sent):
            level = f"DELAY\x01{self._levels[n % len(self._levels)]}\x02" if self._levels else ""
            properties = f"KEYS\x01k{n}\x02UNIQ_KEY\x01{n:032X}\x02WAIT\x01true\x02TAGS\x01t\x02{level}"
            header = SendMessageV2Header("bench", TOPIC, "TBW102", 1, 0, 0, 1_700_000_000_000, 0, properties)
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%08d" % n + filler[8:])
            command.opaque = n + 1
            yield encode_command(command)

    def _receive(self, offset: int) -> None:
        with RawClient("127.0.0.1", self._broker.port, timeout=30) as client:
            while len(self.received) < self.sent:
                response = client.call(RequestCode.PULL_MESSAGE, PULL | {"topic": TOPIC, "queueOffset": offset})
                now_ms = time.time() * 1000
                self.received += [(message, now_ms) for message in decode(response.body, check_body=False)]
                offset = int(response.ext["nextBeginOffset"])


def drain(connection: socket.socket, responses: int) -> None:
    """Read `responses` responses; SystemExit if one is not a success."""
    stream = connection.makefile("rb")
    for _ in range(responses):
        payload = stream.read(int.from_bytes(stream.read(4), "big"))
        if b'"code":0' not in payload:
            raise SystemExit(f"a send was refused: {payload!r}")


def spread(values: Sequence[float]) -> Iterator[tuple[str, float]]:
    """Yield percentiles of sorted values."""
    for name, part in (("min", 0.0), ("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)):
        yield name, values[min(int(len(values) * part), len(values) - 1)]
