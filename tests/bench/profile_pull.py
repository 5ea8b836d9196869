"""Where a pull's CPU goes, stage by stage, as ns per pull.

    python -m tests.bench.profile_pull                        # 32 x 1 KiB, four queues that were filled together
    SKYLARK_COMPILED=0 python -m tests.bench.profile_pull     # the interpreted variant on a machine that compiles
    python -m tests.bench.profile_pull --body 16              # what does not depend on the bytes

Requests are fed from memory through the broker's own parts over a real store; nothing is simulated but the socket. Each
pull gathers records that lie scattered between those of the other queues. Every figure is the minimum of many rounds,
so that a busy machine adds little. `whole` is a read as the selector handles it, from the receive buffer to the
system call that writes, with one pull in it or with four: it is measured for itself, not added up. What the kernel
takes to copy 43 KB, 10 to 20 us, is not in it: the socket is /dev/null. See bench_transfer.
"""

import argparse
import asyncio
import gc
import os
import platform
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from broker.processors.pull_answer import pull_answer_head
from broker.remoting.connection import Connection
from protocol import compiled
from protocol.codes import ResponseCode
from protocol.headers.pull import PullMessageHeader
from protocol.serialize import encode_command
from protocol.stream import CommandDecoder
from tests.bench.bench_pull import NowhereTransport, nowhere
from tests.harness.broker_parts import TOPIC, BrokerParts, broker_parts, pull
from tests.harness.stores import message

QUEUES = 4
WANTED = 32
PULLS = 240
clock = time.perf_counter_ns


class NoSocket:
    """Takes what is written past the transport, and keeps nothing."""

    family = socket.AF_UNIX

    def __init__(self) -> None:
        self._fd = os.open(os.devnull, os.O_WRONLY)

    def fileno(self) -> int:
        return self._fd


class SocketTransport(NowhereTransport):
    """One past which can be written."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.9", 4321))
        self._socket = NoSocket()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._socket if name == "socket" else super().get_extra_info(name, default)


def connection_to_nowhere(parts: BrokerParts) -> Connection:
    """One whose peer has taken everything at once."""
    connection = nowhere(parts).connection
    connection.connection_made(SocketTransport())
    return connection


def best(work: Callable[[], object], rounds: int) -> float:
    """ns per pull of work that is done for all of them."""
    least = float("inf")
    for _ in range(rounds):
        begun = clock()
        work()
        least = min(least, clock() - begun)
    return least / PULLS


def frames_of(parts: BrokerParts, body: int) -> list[bytes]:
    """Requests that read four queues side by side; what they ask for is there afterwards."""
    for _ in range(PULLS // QUEUES * WANTED):
        for queue_id in range(QUEUES):
            parts.store.put(message(b"x" * body, TOPIC, queue_id))
    parts.store.commit()
    places = [(number % QUEUES, number // QUEUES * WANTED) for number in range(PULLS)]
    return [encode_command(pull(queue_id=queue_id, queue_offset=offset)) for queue_id, offset in places]


def profile(parts: BrokerParts, body: int, rounds: int) -> dict[str, float]:
    """ns per pull of every stage."""
    frames = [memoryview(frame) for frame in frames_of(parts, body)]
    connection = connection_to_nowhere(parts)
    decoder, get, checks = CommandDecoder(), parts.store.get, parts.pulls._checks
    commands = [decoder.feed_commands(frame)[0] for frame in frames]
    asked = [(command, command.header(PullMessageHeader)) for command in commands]
    admitted = checks.admit(connection, *asked[0])
    results = [get(TOPIC, header.queue_id, header.queue_offset, WANTED) for _, header in asked]
    answered = list(zip(asked, results, strict=True))

    def reads(count: int) -> None:
        for at in range(0, PULLS, count):
            data = b"".join(frames[at : at + count])
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            parts.selector.end_turn()

    def head() -> None:
        for (command, _), result in answered:
            pull_answer_head(command, ResponseCode.SUCCESS, result, admitted.topic, admitted.group)

    def books() -> None:
        for (_, header), result in answered:
            parts.pulls._note(header, result)

    stages: dict[str, Callable[[], object]] = {
        "decode": lambda: [decoder.feed_commands(frame)[0].header(PullMessageHeader) for frame in frames],
        "checks": lambda: [checks.admit(connection, *each) for each in asked],
        "get": lambda: [get(TOPIC, header.queue_id, header.queue_offset, WANTED) for _, header in asked],
        "head": head,
        "gather": lambda: [result.regions[0].parts_behind(b"") for result in results],
        "books": books,
        "whole, 1 a read": lambda: reads(1),
        f"whole, {QUEUES} a read": lambda: reads(QUEUES),
    }
    return {stage: best(work, rounds) for stage, work in stages.items()}


async def run(options: argparse.Namespace) -> None:
    sizes = {"mapped_file_size_commit_log": 64 << 20, "mapped_file_size_consume_queue": 6_000_000}
    with (
        tempfile.TemporaryDirectory(prefix="profile-pull-", dir=options.directory) as directory,
        broker_parts(Path(directory), **sizes) as parts,
    ):
        gc.collect()
        gc.freeze()
        print(f"Python {platform.python_version()}, {compiled.variant()}, {WANTED} x {options.body} bytes")
        for stage, spent in profile(parts, options.body, options.rounds).items():
            print(f"{stage:16}{spent:10.0f} ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--directory", help="where the temporary store is made")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
