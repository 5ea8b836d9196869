"""Effect of unlimited peers on a broker's memory, and on a client that limits itself.

    python -m tests.bench.bench_overload                                   # all crowds at once, 20 s
    python -m tests.bench.bench_overload --only senders --seconds 10
    python -m tests.bench.bench_overload --only pullers halves --set transferMsgByHeap=true
    python -m tests.bench.bench_overload --acl                             # access control on, all requests signed

A fresh `mqbroker` runs on a temporary store; each crowd is one process with one thread, so that the broker has a core
of its own:

    senders   1,000 connections that send 1 KiB messages as fast as the broker reads, without a limit in flight
    pullers   100 connections that send pulls as fast as the broker reads, and never read a response
    parked    100 connections that send pulls of empty queues, with suspension, as fast as the broker reads
    stalled   100 connections that announce a frame of 16 MiB, send a little of it, and stop
    halves    1,000 connections that announce a frame of 16 MiB and send half of it, as far as the broker reads

At the same time, a limited client sends one message of 1 KiB at a time, 100 per second. Printed: the broker's RssAnon
(sampled 20 times per second; the mapped log does not count), the limited client's latencies and response codes, and the
crowds' results. Budget: RssAnon below 300 MB, the limited client's p99 below 100 ms; the same with `--acl`.
"""

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.frame import encode_prefix
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import encode_command
from tests.bench.bench_send import TOPIC, BrokerProcess, call, create_topic, send_frame, signed

MIB: Final = 1 << 20
BODY: Final = b"x" * 1024
QUEUES: Final = 4
QUIET: Final = "BenchQuiet"
GROUP: Final = "Deaf"
FILLED: Final = 64 * QUEUES
LARGEST: Final = 16 * MIB
SAMPLE_S: Final = 0.05
LIMITED_EVERY_S: Final = 0.01
CALM_S: Final = 2.0
OPERATOR: Final = Credentials("operator", "secret of the operator")
CLIENTS: Final = Credentials("clients", "secret of the clients")
COUNTED: Final = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)
PATIENCE_S: Final = 3.0
"""How long a client waits for the response to a send."""


def main() -> None:
    """Run the crowds and print the figures."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-overload-", dir=options.directory) as directory:
        settings: dict[str, object] = dict(pair.split("=", 1) for pair in options.set)
        if options.acl:
            settings |= access_settings(Path(directory) / "conf")
        broker = BrokerProcess(Path(directory), settings, OPERATOR if options.acl else None)
        try:
            figures = measure(broker, options)
        finally:
            broker.stop()
    print(json.dumps(figures) if options.json else "\n".join(f"{name:28} {value}" for name, value in figures.items()))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--senders", type=int, default=1000, help="connections")
    parser.add_argument("--pullers", type=int, default=100)
    parser.add_argument("--parked", type=int, default=100)
    parser.add_argument("--stalled", type=int, default=100)
    parser.add_argument("--halves", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=sorted(CROWDS), default=sorted(CROWDS), help="crowds to run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--acl", action="store_true", help="turn on access control, and sign all requests")
    parser.add_argument("--directory", help="directory of the temporary store")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


def measure(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Start all crowds, sample the broker, collect the results."""
    operator, account = (OPERATOR, CLIENTS) if options.acl else (None, None)
    for topic in (TOPIC, QUIET):
        call(broker.port, create_topic(QUEUES, topic, credentials=operator))
    fill(broker.port, account)
    idle_mb = rss_anon_mb(broker.pid)
    deadline = time.time() + options.seconds
    crowds = {name: Crowd(name, Load(broker.port, getattr(options, name), deadline, account)) for name in options.only}
    limited = Crowd("limited", Load(broker.port, 1, deadline, account))
    samples = [idle_mb]
    cpu_s = broker.cpu_s()
    while time.time() < deadline:
        samples.append(rss_anon_mb(broker.pid))
        time.sleep(SAMPLE_S)
    cpu_s = broker.cpu_s() - cpu_s
    results: dict[str, object] = limited.result()
    for crowd in crowds.values():
        results |= crowd.result()
        samples.append(rss_anon_mb(broker.pid))
    for _ in range(int(CALM_S / SAMPLE_S)):
        time.sleep(SAMPLE_S)
        samples.append(rss_anon_mb(broker.pid))
    return {
        "rss_anon_mb_max": round(max(samples), 1),
        "rss_anon_mb_before": round(idle_mb, 1),
        "rss_anon_mb_after": round(samples[-1], 1),
        "broker_cpu_percent": round(cpu_s / options.seconds * 100),
        **results,
    }


def access_settings(directory: Path) -> dict[str, object]:
    """Write the accounts of an operator and of the clients; return the settings of access control."""
    accounts = [
        {"accessKey": OPERATOR.access_key, "secretKey": OPERATOR.secret_key, "admin": True},
        {
            "accessKey": CLIENTS.access_key,
            "secretKey": CLIENTS.secret_key,
            "topicPerms": [f"{topic}=PUB|SUB" for topic in (TOPIC, QUIET)],
            "groupPerms": [f"{GROUP}=SUB"],
        },
    ]
    directory.mkdir()
    file = directory / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(json.dumps({"accounts": accounts}))  # JSON is YAML
    return {"aclEnable": "true", "aclConfigDir": directory}


def fill(port: int, account: Credentials | None) -> None:
    """Send messages for the pullers."""
    stream = Stream(port)
    for number in range(FILLED):
        stream.socket.sendall(send_frame(number, number % QUEUES, BODY, JSON, account))
        code = stream.receive_code()
        if code:
            raise SystemExit(f"the broker refused a send with {code}")
    stream.socket.close()


def rss_anon_mb(pid: int) -> float:
    """Return the anonymous memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024


class Load(NamedTuple):
    """A number of connections to a port until a deadline (Unix time in s). `account` signs their requests."""

    port: int
    connections: int
    deadline: float
    account: Credentials | None


class Crowd:
    """A process in which many connections do the same until a deadline."""

    def __init__(self, name: str, load: Load) -> None:
        self._pipe, end = multiprocessing.Pipe()
        run = limited_client if name == "limited" else run_crowd
        self._process = multiprocessing.Process(target=run, args=(name, load, end), name=name)
        self._process.start()

    def result(self) -> dict[str, object]:
        """Return the result that the process sends at its end."""
        figures: dict[str, object] = self._pipe.recv()
        self._process.join()
        return figures


# ------------------------------------------------------------------------------------------------------- limited client


def limited_client(_name: str, load: Load, pipe: Pipe) -> None:
    """One send at a time, at a fixed rate; a late response counts with its whole latency."""
    waits_ms: list[float] = []
    codes: Counter[str] = Counter()
    stream = Stream(load.port)
    number = 0
    beat = time.time()
    while time.time() < load.deadline:
        number += 1
        started = time.monotonic()
        stream.socket.sendall(send_frame(number, number % QUEUES, BODY, JSON, load.account))
        try:
            codes[f"{stream.receive_code()}"] += 1
        except TimeoutError:
            codes["none"] += 1
            stream = Stream(load.port)
        waits_ms.append((time.monotonic() - started) * 1000)
        beat = max(beat + LIMITED_EVERY_S, time.time() - 1)
        time.sleep(max(beat - time.time(), 0))
    cuts = quantiles(waits_ms, n=100)
    pipe.send(
        {
            "limited_p50_ms": round(cuts[49], 1),
            "limited_p99_ms": round(cuts[98], 1),
            "limited_max_ms": round(max(waits_ms), 1),
            "limited_responses": dict(codes),
        }
    )


class Stream:
    """A connection that waits for responses one by one."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.socket.makefile("rb")

    def receive_code(self) -> int:
        """Return the code of the next response. Raises TimeoutError."""
        size, word = struct.unpack(">iI", self._stream.read(8))
        header = json.loads(self._stream.read(word & 0xFFFFFF))
        self._stream.read(size - 4 - (word & 0xFFFFFF))
        code: int = header["code"]
        return code


# --------------------------------------------------------------------------------------------------------------- crowds


class Member:
    """One connection of a crowd: it writes `block` repeatedly or once, and reads responses or not."""

    def __init__(self, port: int, block: bytes, *, repeat: bool, reads: bool) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # the broker buffers, not we
        if not reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._block = memoryview(block)
        self._repeat = repeat
        self._at = 0
        self.reads = reads
        self.sent_bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether everything is written."""
        return self._at == len(self._block) and not self._repeat

    def write(self) -> None:
        """Write as much as the socket accepts."""
        if self._at == len(self._block):
            self._at = 0
        try:
            sent = self.socket.send(self._block[self._at : self._at + 256 * 1024])
        except BlockingIOError:
            return
        self._at += sent
        self.sent_bytes += sent


def senders_block(account: Credentials | None) -> bytes:
    """Return sends of 1 KiB."""
    return b"".join(send_frame(number, number % QUEUES, BODY, JSON, account) for number in range(64))


def pullers_block(account: Credentials | None) -> bytes:
    """Return pulls of existing messages, from the first offset on, 32 messages each."""
    return b"".join(signed(pull_frame(number, TOPIC), account) for number in range(64))


def parked_block(account: Credentials | None) -> bytes:
    """Return pulls of an offset without a message."""
    return b"".join(signed(pull_frame(number, QUIET), account) for number in range(64))


def pull_frame(number: int, topic: str) -> bytes:
    """Return one pull with its own subscription and suspension."""
    header = PullMessageHeader(
        consumer_group=GROUP,
        topic=topic,
        queue_id=number % QUEUES,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
        subscription="*",
    )
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    command.opaque = number
    return encode_command(command)


def announcing(size: int) -> bytes:
    """Return the first `size` bytes of a frame of the maximum size."""
    header = b'{"code":310,"opaque":1}'
    prefix = encode_prefix(JSON, len(header), LARGEST - 8 - len(header))
    return (prefix + header).ljust(size, b"x")


CROWDS: Final[dict[str, tuple[Callable[[Credentials | None], bytes], bool, bool]]] = {
    "senders": (senders_block, True, True),
    "pullers": (pullers_block, True, False),
    "parked": (parked_block, True, True),
    "stalled": (lambda _account: announcing(1000), False, False),
    "halves": (lambda _account: announcing(LARGEST // 2), False, False),
}
"""The block of each member, whether it is repeated, and whether the member reads."""


def run_crowd(name: str, load: Load, pipe: Pipe) -> None:
    """Run all members until the deadline; send the number of responses by code, and the bytes sent."""
    make_block, repeat, reads = CROWDS[name]
    block = make_block(load.account)
    responses: Counter[str] = Counter()
    closed = 0
    members = [Member(load.port, block, repeat=repeat, reads=reads) for _ in range(load.connections)]
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.socket, interest(member), member)
        while time.time() < load.deadline:
            for key, events in selector.select(0.2):
                try:
                    serve(key.data, events, responses)
                except (ConnectionError, EOFError):
                    closed += 1
                    selector.unregister(key.fileobj)
                    key.data.socket.close()
                    continue
                if key.data.is_done and key.events & selectors.EVENT_WRITE:
                    selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
    sent = sum(member.sent_bytes for member in members)
    pipe.send(
        {
            f"{name}_sent_mb": round(sent / 1e6),
            **({f"{name}_answers": dict(responses)} if reads else {}),
            f"{name}_closed": closed,
        }
    )


def interest(member: Member) -> int:
    """Return the events that a member waits for."""
    return selectors.EVENT_WRITE | selectors.EVENT_READ if member.reads else selectors.EVENT_WRITE


def serve(member: Member, events: int, responses: Counter[str]) -> None:
    """Let one member read and write. Raises ConnectionError or EOFError if the connection was closed."""
    if events & selectors.EVENT_WRITE:
        member.write()
    if events & selectors.EVENT_READ:
        data = member.socket.recv(256 * 1024)
        if not data:
            raise EOFError
        for code in COUNTED:
            responses[f"{code}"] += data.count(b'{"code":%d,' % code)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
