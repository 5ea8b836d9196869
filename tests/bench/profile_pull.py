"""CPU of a pull, stage by stage, as ns per pull.

    python -m tests.bench.profile_pull                        # 32 x 1 KiB, four queues that were filled together
    SKYLARK_COMPILED=0 python -m tests.bench.profile_pull     # the interpreted variant on a machine that compiles
    python -m tests.bench.profile_pull --body 16              # the cost that does not depend on the bytes

Requests are fed from memory through the broker's own parts over a real store; only the socket is simulated. Each pull
gathers records that are scattered between those of the other queues. Every figure is the minimum of many rounds, so
that a busy machine adds little. `whole` is a read as the selector handles it, from the receive buffer to the system
call that writes, with one pull in it or with four: it is measured separately, not added up. It excludes the kernel's
time to copy 43 KB, 10 to 20 us: the socket is /dev/null. See bench_transfer.

`one by one` is the path of pulls that are not on the fast path; `checks`, `get`, `general head` and `books` are parts
of it.
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

from skylarkmq.broker.processors.pull.response import found_head, found_pieces, pull_response_head
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder
from tests.bench.bench_pull import NowhereTransport, nowhere
from tests.harness.broker_parts import TOPIC, BrokerParts, broker_parts, pull
from tests.harness.stores import message

QUEUES = 4
WANTED = 32
PULLS = 240
clock = time.perf_counter_ns


class NoSocket:
    """Accepts direct writes and discards them."""

    family = socket.AF_UNIX

    def __init__(self) -> None:
        self._fd = os.open(os.devnull, os.O_WRONLY)

    def fileno(self) -> int:
        return self._fd


class SocketTransport(NowhereTransport):
    """A transport that permits direct writes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.9", 4321))
        self._socket = NoSocket()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._socket if name == "socket" else super().get_extra_info(name, default)


def connection_to_nowhere(parts: BrokerParts) -> Connection:
    """Return a connection whose peer accepts everything at once."""
    connection = nowhere(parts).connection
    connection.connection_made(SocketTransport())
    return connection


def best(work: Callable[[], object], rounds: int) -> float:
    """Return ns per pull of work that is done for all pulls."""
    least = float("inf")
    for _ in range(rounds):
        begun = clock()
        work()
        least = min(least, clock() - begun)
    return least / PULLS


def frames_of(parts: BrokerParts, body: int) -> list[bytes]:
    """Store messages, and return requests that read four queues side by side."""
    for _ in range(PULLS // QUEUES * WANTED):
        for queue_id in range(QUEUES):
            parts.store.put(message(b"x" * body, TOPIC, queue_id))
    parts.store.commit()
    places = [(number % QUEUES, number // QUEUES * WANTED) for number in range(PULLS)]
    return [encode_command(pull(queue_id=queue_id, queue_offset=offset)) for queue_id, offset in places]


class Profile:
    """Pulls of a store's four queues, as frames and as decoded requests."""

    def __init__(self, parts: BrokerParts, body: int) -> None:
        self._parts = parts
        self._frames = [memoryview(frame) for frame in frames_of(parts, body)]
        self._connection = connection_to_nowhere(parts)
        decoder = CommandDecoder()
        commands = [decoder.feed_commands(frame)[0] for frame in self._frames]
        self._requests = [(command, command.header(PullMessageHeader)) for command in commands]
        self._admitted = parts.pulls._checks.admit(self._connection, *self._requests[0])
        get = parts.store.get
        self._results = [get(TOPIC, header.queue_id, header.queue_offset, WANTED) for _, header in self._requests]

    def plain_stages(self) -> dict[str, Callable[[], object]]:
        """Return the stages of fast-path pulls."""
        feed = CommandDecoder().feed_commands
        pieces = found_pieces(self._admitted.topic, self._admitted.group)
        ahead = [self._parts.store.read_ahead(TOPIC, number, 0, PULLS // QUEUES * WANTED) for number in range(QUEUES)]
        units = [it.units for it in ahead if it is not None]
        places = [(units[header.queue_id], header.queue_offset) for _, header in self._requests]
        numbers = [(it.max_offset, it.min_offset, it.next_begin_offset, 1, it.total_bytes) for it in self._results]
        return {
            "decode": lambda: [feed(frame)[0].header(PullMessageHeader) for frame in self._frames],
            "take": lambda: [stretch.take(offset, WANTED, 1 << 18) for stretch, offset in places],
            "head": lambda: [found_head(pieces, *each) for each in numbers],
            "whole, 1 a read": lambda: self._read(1),
            f"whole, {QUEUES} a read": lambda: self._read(QUEUES),
        }

    def other_stages(self) -> dict[str, Callable[[], object]]:
        """Return the stages of other pulls."""
        pulls, get, topic, group = self._parts.pulls, self._parts.store.get, self._admitted.topic, self._admitted.group
        served = [(*asked, result) for asked, result in zip(self._requests, self._results, strict=True)]
        success = ResponseCode.SUCCESS

        def books() -> None:
            for _, header, result in served:
                pulls._note(header, result)

        return {
            "checks": lambda: [pulls._checks.admit(self._connection, *each) for each in self._requests],
            "get": lambda: [get(TOPIC, header.queue_id, header.queue_offset, WANTED) for _, header in self._requests],
            "general head": lambda: [pull_response_head(it, success, result, topic, group) for it, _, result in served],
            "books": books,
            "one by one": self._read_one_by_one,
        }

    def _read(self, count: int) -> None:
        for at in range(0, PULLS, count):
            data = b"".join(self._frames[at : at + count])
            self._connection.get_buffer(-1)[: len(data)] = data
            self._connection.buffer_updated(len(data))
            self._parts.selector.batch.end()

    def _read_one_by_one(self) -> None:
        runs = self._parts.dispatcher._runs
        plain = runs.copy()
        runs.clear()
        self._read(QUEUES)
        runs.update(plain)


def profile(parts: BrokerParts, body: int, rounds: int) -> dict[str, float]:
    """Return ns per pull of every stage."""
    pulls = Profile(parts, body)
    stages = pulls.plain_stages() | pulls.other_stages()
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
    parser.add_argument("--directory", help="directory of the temporary store")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
