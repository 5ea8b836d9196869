"""CPU of a batch send, stage by stage, as ns per message in it.

    python -m tests.bench.profile_batches                     # 100 messages of 1 KiB per batch, two batches per read
    SKYLARK_COMPILED=0 python -m tests.bench.profile_batches --members 10 --rounds 200 --no-index

Like profile_send: the broker's own parts over a real store, fed from memory, the minimum of many rounds. `cut` is
`whole` with reads that end within batches, like those of a socket, so that each batch is first assembled from pieces.
"""

import argparse
import asyncio
import gc
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.store.dispatch.dispatch import Dispatch
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.clients.mqbench.prepared_frames import FIRST_BORN_MS, Message, Target, encode
from skylarkmq.protocol import compiled
from skylarkmq.protocol.stream import CommandDecoder
from tests.bench.bench_send import TOPIC
from tests.bench.profile_send import SendSide, Stopwatch, clock, socket_calls

STAGES = {
    "read": "recv of the frames",
    "decode": "frames of the read, headers",
    "encode": "batch decoded, properties completed, appends created",
    "store": "put: records into the open batch",
    "append": "commit without the following stages: join, flusher notified, statuses",
    "write": "the one pwrite",
    "dispatch": "queue units and arrivals",
    "index": "keys into the index",
    "response": "message ids, the response's header and frame",
    "rest": "dispatch of the request, checks, counters",
    "whole": "receive buffer to transport, all of the above but read",
    "cut": "the same, in reads of 64 KiB",
}
BODY_BYTES = 1024
CUT_BYTES = 65_536
FIRST_NUMBER = 100  # of a batch whose keys are equally long


def staged_read(side: SendSide, data: memoryview, watch: Stopwatch) -> Iterator[tuple[str, int]]:
    """Run one read through the parts; yield the ns of each stage."""
    begun = clock()
    commands = CommandDecoder().feed_commands(data)
    decoded = clock()
    watch.take()
    side.selector.batch.run(side.connection, commands)
    side.selector.batch.end()
    took = clock() - decoded
    spent = watch.take()
    spent["rest"] = took - spent["encode"] - spent["store"] - spent["commit"] - spent["response"]
    spent["append"] = spent.pop("commit") - spent["write"] - spent["dispatch"]
    spent["dispatch"] -= spent.get("index", 0)
    yield "decode", decoded - begun
    yield from spent.items()


def fed(side: SendSide, frames: bytes, piece: int) -> int:
    """Return the ns of the whole, in reads of `piece` bytes."""
    spent = 0
    for at in range(0, len(frames), piece):
        size = min(piece, len(frames) - at)
        side.selector.read_scheduler.receive_buffer[:size] = frames[at : at + size]
        begun = clock()
        side.updated(size)
        spent += clock() - begun
    return spent


def profile(side: SendSide, members: int, batches: int, rounds: int, first: int) -> dict[str, float]:
    """Return ns per message of every stage."""
    body = os.urandom(BODY_BYTES)
    frames = b"".join(
        encode(Target(TOPIC, n, "broker-a"), Message(0, first + n, 0, FIRST_BORN_MS), 10, body, members)
        for n in range(batches)
    )
    buffer = side.selector.read_scheduler.receive_buffer
    assert len(frames) <= len(buffer), "larger than a read"
    best: dict[str, float] = {}

    def note(stage: str, spent: float) -> None:
        best[stage] = min(best.get(stage, float("inf")), spent / members / batches)

    for number in range(rounds):
        side.step(number)
        watch = Stopwatch()
        watch.within(SendMessages, "batch", "encode")
        watch.within(side.store, "put_alike", "store")
        watch.within(MessageStore, "commit", "commit")
        watch.within(MappedFile, "write", "write")
        watch.within(Dispatch, "dispatch", "dispatch")
        watch.within(IndexFeed, "add", "index")
        for method in ("stored_batch", "stored_general"):
            watch.within(SendResponses, method, "response")
        buffer[: len(frames)] = frames
        for stage, spent in staged_read(side, buffer[: len(frames)], watch):
            note(stage, spent)
        watch.unwrap()
        note("whole", fed(side, frames, len(frames)))
        note("cut", fed(side, frames, CUT_BYTES))
        side.transport.written.clear()
    best["read"] = socket_calls(frames, members * batches, rounds)
    return best


async def run(options: argparse.Namespace) -> None:
    directory = Path(tempfile.mkdtemp(prefix="profile-batches-", dir=options.directory))
    side = SendSide(directory / "store", is_indexed=not options.no_index)
    try:
        gc.collect()
        gc.freeze()
        print(f"Python {platform.python_version()}, {compiled.variant()}, batches of {options.members} x {BODY_BYTES}")
        best = profile(side, options.members, options.batches, options.rounds, 0 if options.uneven else FIRST_NUMBER)
        for stage, what in STAGES.items():
            print(f"{stage:10}{best.get(stage, 0):10.0f}   {what}")
        print(f"{BODY_BYTES * 1000 / best['whole']:.0f} MB/s of bodies")
    finally:
        side.store.close()
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=100, help="messages per batch")
    parser.add_argument("--batches", type=int, default=2, help="batches per read")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--uneven", action="store_true", help="the first batch has keys of two lengths")
    parser.add_argument("--no-index", action="store_true")
    parser.add_argument("--directory", help="directory of the temporary store")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
