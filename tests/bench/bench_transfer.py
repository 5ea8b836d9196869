"""Cost of a pull to the broker on a real socket, and the length from which on sendfile is cheaper than a copy.

    python -m tests.bench.bench_transfer                 # the crossover, then a consumer that catches up
    python -m tests.bench.bench_transfer --only crossover
    python -m tests.bench.bench_transfer --only catch-up --queues 4 --in-flight 4 --set transferMsgByHeap=true

Crossover: a remoting server responds to a process that sends one request after the other, with runs of a file: copied
from the mapping, sent by sendfile, or, as if they were not in memory, sent or read by a thread. CPU of the server per
response, the best of several interleaved rounds; the cost of the requests is the same in all of them.

Catch-up: a fresh `mqbroker`, `--messages` of 1 KiB over `--queues` queues, then one consumer that reads them all,
`--rounds` times, with one pull of 32 in flight for each of `--in-flight` queues on one connection. CPU of the broker's
process per message, each round; then the same after a restart, where the first round verifies the records it reads.
"""

import argparse
import asyncio
import itertools
import mmap
import multiprocessing
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import uvloop

from skylarkmq.broker.remoting import connection_writer
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import encode_command
from tests.bench import bench_send
from tests.bench.bench_send import BrokerProcess, Client, call, create_topic
from tests.harness.file_line import RegionsFile

FILE_BYTES: Final = 256 << 20
RUNS: Final = (1_200, 4_096, 8_192, 12_288, 16_384, 40_960, 65_536, 131_072, 262_144, 1 << 20)
HEAD: Final = b"h" * 270
CODE: Final = 1001
NEXT: Final = re.compile(rb'"nextBeginOffset":"(\d+)"')
OPAQUE: Final = re.compile(rb'"opaque":(\d+)')


def main() -> None:
    """Run the selected parts and print the figures."""
    options = parse_arguments()
    if options.only != "catch-up":
        print_crossover(options.rounds)
    if options.only != "crossover":
        with tempfile.TemporaryDirectory(prefix="bench-transfer-", dir=options.directory) as directory:
            print_catch_up(Path(directory), options)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("crossover", "catch-up"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=1, help="queues that are pulled at the same time")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the broker")
    parser.add_argument("--directory", help="directory of the temporary store")
    parser.add_argument("--hold", action="store_true", help="print the broker's process id and read forever")
    return parser.parse_args()


# -------------------------------------------------------------------------------------------------------- the crossover


def print_crossover(rounds: int) -> None:
    """Print a table of microseconds."""
    print(
        f"{'bytes':>8}{'copied':>10}{'sent':>10}{'sent by a thread':>20}{'read by a thread':>20}   CPU us per response"
    )
    uvloop.install()
    vars(connection_writer)["SENDFILE_FROM_BYTES"] = 0  # always sendfile: the crossover is the result
    with RegionsOfFile() as file:
        for size in RUNS:
            ways = ((True, True), (False, True), (False, False), (True, False))
            best = dict.fromkeys(ways, float("inf"))
            for _ in range(rounds):
                for copies, is_hot in ways:
                    responses = max(16, min(400, (16 << 20) // size))
                    spent = asyncio.run(serve(file, size, responses, copies=copies, is_hot=is_hot))
                    best[copies, is_hot] = min(best[copies, is_hot], spent)
            print(
                f"{size:8}{best[ways[0]]:10.1f}{best[ways[1]]:10.1f}{best[ways[2]]:20.1f}{best[ways[3]]:20.1f}",
                flush=True,
            )


class RegionsOfFile(RegionsFile):
    """A file as a busy broker writes it: allocated, then written in steps of 64 KiB."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.close()
        with tempfile.TemporaryFile() as file:
            self.fd = os.dup(file.fileno())
        os.posix_fallocate(self.fd, 0, FILE_BYTES)
        for at in range(0, FILE_BYTES, 65_536):
            os.pwrite(self.fd, self.data[:65_536], at)
        self.view = memoryview(mmap.mmap(self.fd, FILE_BYTES, access=mmap.ACCESS_READ))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def serve(file: RegionsFile, size: int, responses: int, *, copies: bool, is_hot: bool) -> float:
    """Return the CPU microseconds per response, for a process that reads runs of `size` bytes one after the other."""
    server = RemotingServer(RemotingConfig(transfer_by_copying=copies))
    positions = itertools.cycle(range(0, FILE_BYTES - size, size + 4_096))

    def response(source: RequestSource, _command: RemotingCommand) -> None:
        source.write(HEAD)
        source.write_regions((file.region(next(positions), size, is_hot=is_hot),))

    server.dispatcher.register([CODE], response, Pool("bench", 1))
    port = await server.start("127.0.0.1", 0)
    requester = multiprocessing.get_context("fork").Process(target=request_runs, args=(port, size, responses))
    requester.start()
    gone = asyncio.Event()
    server.selector.registry.on_close(lambda _: gone.set())
    begin = time.process_time_ns()
    await gone.wait()
    spent = time.process_time_ns() - begin
    requester.join()
    await server.stop(lambda: 0)
    return spent / responses / 1000


def request_runs(port: int, size: int, responses: int) -> None:
    """Send `responses` requests, each after the response to the previous request. Runs in a process of its own."""
    request = encode_command(RemotingCommand.request(CODE))
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        for _ in range(responses):
            sock.sendall(request)
            left = len(HEAD) + size
            while left:
                left -= sock.recv_into(buffer, min(left, len(buffer)))


# ---------------------------------------------------------------------------------------------------------- catching up


def print_catch_up(directory: Path, options: argparse.Namespace) -> None:
    """Print the broker's CPU microseconds per message, and messages per second, round by round."""
    settings = dict(setting.split("=", 1) for setting in options.set)
    for state in ("appended since the start", "after a restart"):
        broker = BrokerProcess(directory, settings)
        try:
            if state.startswith("appended"):
                fill(broker, options)
            if options.hold:
                print(broker.pid, flush=True)
            for number in range(1 << 30 if options.hold else options.rounds):
                cpu, seconds, count = read_timed(broker, options)
                figures = f"{cpu / count * 1e6:6.2f} us {count / seconds:10,.0f} msg/s"
                print(f"{state:26} round {number + 1} {figures} n={count}", flush=True)
        finally:
            broker.stop()


def fill(broker: BrokerProcess, options: argparse.Namespace) -> None:
    """Send the messages."""
    call(broker.port, create_topic(options.queues))
    load = argparse.Namespace(queues=options.queues, body=1024, in_flight=256)
    clients = [Client(broker.port, load, JSON) for _ in range(2)]
    while sum(client.responses for client in clients) < options.messages:
        bench_send.run(clients, 0.2)
    for client in clients:
        client.socket.close()


def read_timed(broker: BrokerProcess, options: argparse.Namespace) -> tuple[float, float, int]:
    """Return CPU seconds of the broker, seconds, messages."""
    clock = (~broker.pid << 3) | 2  # the process's CPU clock, in nanoseconds
    cpu, begin = time.clock_gettime_ns(clock), time.monotonic()
    count = sum(read_all(broker, options))
    return (time.clock_gettime_ns(clock) - cpu) / 1e9, time.monotonic() - begin, count


def read_all(broker: BrokerProcess, options: argparse.Namespace) -> Iterator[int]:
    """Read all queues as one consumer; yield the number of messages of each response."""
    offsets = [0] * options.queues
    todo = list(range(options.queues))
    in_flight: list[int] = []
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(1 << 20))
        filled = 0
        while todo or in_flight:
            while todo and len(in_flight) < options.in_flight:
                queue_id = todo.pop(0)
                in_flight.append(queue_id)
                sock.send(pull_frame(queue_id, offsets[queue_id]))
            filled += sock.recv_into(buffer[filled:])
            at = 0
            while filled - at >= 4 and filled - at >= (size := 4 + int.from_bytes(buffer[at : at + 4], "big")):
                head = bytes(buffer[at : at + 400])
                queue_id, after = int(OPAQUE.findall(head)[0]), int(NEXT.findall(head)[0])
                in_flight.remove(queue_id)
                yield after - offsets[queue_id]
                if after > offsets[queue_id]:
                    todo.append(queue_id)
                offsets[queue_id] = after
                at += size
            buffer[: filled - at] = buffer[at:filled]
            filled -= at


def pull_frame(queue_id: int, offset: int) -> bytes:
    """Return one PULL_MESSAGE (11) of up to 32 messages, like Java's consumer."""
    header = PullMessageHeader(
        consumer_group="BenchGroup",
        topic=bench_send.TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=PullSysFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    command.opaque, command.language = queue_id, "JAVA"
    return encode_command(command)


if __name__ == "__main__":
    main()
