"""Cost of a pull to the broker: CPU per pull that finds messages, per parked pull, and per woken pull.

    python -m tests.bench.bench_pull                    # 4,000 pulls of 32 x 1 KiB; 10,000 parked
    python -m tests.bench.bench_pull --wanted 1 --parked 1000

Processors run over a real store, with connections without sockets: requests are encoded frames; responses end where the
kernel would take them. CPU of this process, the best of five rounds.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from skylarkmq.protocol.serialize import encode_command
from tests.harness.broker_parts import BrokerParts, broker_parts, consumer, heartbeat, pull
from tests.harness.peer import MemoryTransport, Peer

STORED = 20_000
ROUNDS = 5
LOOP_TURN = 8


class NowhereTransport(MemoryTransport):
    """Accepts all bytes and discards them."""

    def write(self, data: object) -> None:
        pass


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pulls", type=int, default=4000)
    parser.add_argument("--wanted", type=int, default=32, help="messages per pull")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--parked", type=int, default=10_000)
    asyncio.run(measure(parser.parse_args()))


async def measure(options: argparse.Namespace) -> None:
    sizes = {"mapped_file_size_commit_log": 64 << 20, "mapped_file_size_consume_queue": 6_000_000}
    with (
        tempfile.TemporaryDirectory(prefix="bench-pull-") as directory,
        broker_parts(Path(directory), **sizes) as parts,
    ):
        parts.put(*[b"x" * options.body] * STORED)
        client = nowhere(parts)
        offsets = [number * options.wanted % (STORED - options.wanted) for number in range(options.pulls)]
        pulls = [encode_command(pull(queue_offset=offset, max_msg_nums=options.wanted)) for offset in offsets]
        await report("pull, subscription in the request", options.pulls, lambda: feed(client, pulls))
        await feed(client, [encode_command(heartbeat(consumer()))])
        registered = (pull(queue_offset=offset, max_msg_nums=options.wanted, sys_flag=0) for offset in offsets)
        pulls = [encode_command(request) for request in registered]
        await report("pull, subscription of the heartbeat", options.pulls, lambda: feed(client, pulls))
        found = parts.pulls.statistics().found
        if found != 2 * ROUNDS * options.pulls:
            raise SystemExit(f"{found} pulls found messages, not {2 * ROUNDS * options.pulls}")
        clients = [nowhere(parts) for _ in range(100)]

        async def park() -> None:
            for number in range(options.parked):
                request = pull(queue_id=1, queue_offset=round_, suspend_ms=15_000)
                await feed(clients[number % len(clients)], [encode_command(request)], number)

        async def wake() -> None:
            parts.put(b"x", queue_id=1)

        for round_ in range(2):
            await report(f"park, with encoding it (round {round_ + 1})", options.parked, park, rounds=1)
            await report(f"wake all at once (round {round_ + 1})", options.parked, wake, rounds=1)


def nowhere(parts: BrokerParts) -> Peer:
    """Return a client without a socket."""
    peer = parts.peer()
    peer.transport = NowhereTransport(("127.0.0.9", 4321))
    peer.connection.connection_made(peer.transport)
    return peer


async def feed(peer: Peer, frames: Iterable[bytes], first: int = 1) -> None:
    """Feed each frame as a separate read, LOOP_TURN of them per event-loop iteration."""
    for number, data in enumerate(frames, first):
        peer.connection.get_buffer(-1)[: len(data)] = data
        peer.connection.buffer_updated(len(data))
        peer.selector.batch.end()
        if number % LOOP_TURN == 0:
            await asyncio.sleep(0)


async def report(what: str, count: int, work: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> None:
    """Print the CPU per unit of work."""
    spent = []
    for _ in range(rounds):
        begin = time.process_time_ns()
        await work()
        spent.append(time.process_time_ns() - begin)
    print(f"{what:40} {min(spent) / count / 1000:8.2f} us")


if __name__ == "__main__":
    main()
