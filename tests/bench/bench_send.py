"""Cost of an accepted send to the broker: CPU per message, sends per second, start-up time, resident memory.

    python -m tests.bench.bench_send                      # 4 connections x 256 in flight, 1 KiB, JSON headers, 10 s
    python -m tests.bench.bench_send --seconds 30 --in-flight 1 --connections 1
    python -m tests.bench.bench_send --dialect binary     # or msgpack

A fresh `mqbroker` runs as a separate process on a temporary store. The load generator sends frames that were encoded in
advance, so it is not the bottleneck. The broker's CPU is user + system time of its process (/proc), which on a shared
machine is steadier than throughput. Budget: 10 us of broker CPU per 1 KiB send.
"""

import argparse
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.headers.topic import CreateTopicHeader
from skylarkmq.protocol.msgpack_header import encode_positional
from skylarkmq.protocol.serialize import encode_command
from tests.harness.ports import free_ports

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
TOPIC = "BenchSend"
DIALECTS = {"json": JSON, "binary": ROCKETMQ, "msgpack": MSGPACK}


def main() -> None:
    """Run the benchmark and print its figures."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-send-", dir=options.directory) as directory:
        broker = BrokerProcess(Path(directory))
        try:
            figures = measure(broker, options)
        finally:
            broker.stop()
    print(json.dumps(figures) if options.json else "\n".join(f"{name:28} {value}" for name, value in figures.items()))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=256, help="per connection")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--dialect", choices=tuple(DIALECTS), default="json")
    parser.add_argument("--directory", help="directory of the temporary store")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


class BrokerProcess:
    """A fresh broker with an embedded name server on free ports. `credentials` sign the first requests."""

    def __init__(
        self,
        directory: Path,
        more: Mapping[str, object] = MappingProxyType({}),
        credentials: Credentials | None = None,
    ) -> None:
        self.port, namesrv_port = free_ports(2)
        settings = {
            "listenPort": self.port,
            "embeddedNamesrvPort": namesrv_port,
            "storePathRootDir": directory / "store",
            "metricsPromExporterPort": 0,
            **more,
        }
        arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        started = time.monotonic()
        command = [sys.executable, "-m", "skylarkmq.broker", *arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        call(self.port, create_topic(4, credentials=credentials))
        response = call(self.port, send_frame(0, 0, b"first", JSON, credentials))
        self.first_send_s = time.monotonic() - started
        if response["code"] != 0:
            raise SystemExit(f"the broker refused the first send: {response}")
        self.idle_rss_mb = self.rss_mb()

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Return user and system time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def rss_mb(self) -> float:
        """Return the anonymous memory and the mapped libraries in MB, without the mapped store."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith("Rss")}
        return (kib["RssAnon"] + kib["RssFile"]) / 1024

    def stop(self) -> None:
        """Stop the broker by a signal, like an operator."""
        self._process.terminate()
        self._process.wait(timeout=20)


def measure(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Load the broker and divide its CPU time by the number of responses."""
    dialect = DIALECTS[options.dialect]
    call(broker.port, create_topic(options.queues))
    clients = [Client(broker.port, options, dialect) for _ in range(options.connections)]
    run(clients, 1.0)
    cpu, received, started = broker.cpu_s(), sum(c.responses for c in clients), time.monotonic()
    run(clients, options.seconds)
    elapsed = time.monotonic() - started
    sent = sum(c.responses for c in clients) - received
    cpu = broker.cpu_s() - cpu
    errors = sum(client.errors for client in clients)
    return {
        "broker_cpu_us_per_message": round(cpu / sent * 1e6, 2),
        "sends_per_second": round(sent / elapsed),
        "messages": sent,
        "errors": errors,
        "start_to_first_send_s": round(broker.first_send_s, 3),
        "idle_rss_mb": round(broker.idle_rss_mb, 1),
    }


class Client:
    """One connection that keeps a number of prepared sends in flight."""

    def __init__(
        self, port: int, options: argparse.Namespace, dialect: int, credentials: Credentials | None = None
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = [
            send_frame(i, i % options.queues, os.urandom(options.body // 2).hex().encode(), dialect, credentials)
            for i in range(options.in_flight)
        ]
        self._ends = [0]
        for frame in frames * 2:
            self._ends.append(self._ends[-1] + len(frame))
        self._ring = memoryview(b"".join(frames * 2))
        self._count = len(frames)
        self._next = 0
        self._rest = b""
        self.responses = 0
        self.errors = 0
        self.send(self._count)

    def send(self, count: int) -> None:
        """Send the next `count` prepared frames."""
        start = self._next
        self.socket.sendall(self._ring[self._ends[start] : self._ends[start + count]])
        self._next = (start + count) % self._count

    def receive(self) -> int:
        """Read the available bytes; return the number of responses in them."""
        data = self._rest + self.socket.recv(262_144)
        at = count = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            if data[at + 7 + 1 : at + 18] != b'{"code":0,' and data[at + 4] == JSON:
                self.errors += 1
            at = end
            count += 1
        self._rest = data[at:]
        self.responses += count
        return count


def run(clients: list[Client], seconds: float) -> None:
    """Keep all clients busy for some time."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for key, _ in selector.select(1):
                if count := key.data.receive():
                    key.data.send(count)


def send_frame(opaque: int, queue_id: int, body: bytes, dialect: int, credentials: Credentials | None = None) -> bytes:
    """Return one SEND_MESSAGE_V2 (310) with UNIQ_KEY, KEYS and TAGS, like Java's producer."""
    uniq = f"C0A8010A0001{opaque:020X}"
    header = SendMessageV2Header(
        producer_group="BenchGroup",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=f"KEYS\x01k{opaque}\x02UNIQ_KEY\x01{uniq}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        bname="broker-a",
    )
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
    command.opaque, command.dialect, command.language = opaque, dialect, "JAVA"
    if dialect == MSGPACK:
        return encode_frame(dialect, encode_positional(command, header), body)
    return signed(encode_command(command), credentials)


def create_topic(queues: int, topic: str = TOPIC, credentials: Credentials | None = None) -> bytes:
    """Return one UPDATE_AND_CREATE_TOPIC (17)."""
    header = CreateTopicHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    return signed(encode_command(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)), credentials)


def signed(frame: bytes, credentials: Credentials | None) -> bytes:
    """Return the frame of a request, signed if there are credentials."""
    return frame if credentials is None else credentials.signed_frame(frame)


def call(port: int, frame: bytes, timeout_s: float = 10.0) -> dict[str, object]:
    """Send one JSON request once the port accepts connections; return the response's header."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
                connection.sendall(frame)
                stream = connection.makefile("rb")
                _, word = struct.unpack(">iI", stream.read(8))
                header: dict[str, object] = json.loads(stream.read(word & 0xFFFFFF))
                return header
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


if __name__ == "__main__":
    main()
