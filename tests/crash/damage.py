"""Damage: a flipped bit, a zeroed, misdirected or truncated block in any file of a store is detected or harmless.

    python -m tests.crash.damage --seeds 200000 --jobs 2      prints failing seeds, and a summary at the end
    python -m tests.crash.damage --seed 4711                  only this seed

A seed damages one position in a copy of one of two stores (stopped cleanly, or not), opens it and reads every queue.
The start may fail with a StoreError, and messages may be missing; every delivered message equals the sent one: body,
queue and queue offset. A query by key returns records as they are in the log, including those that recovery skipped:
their bodies are as sent. The other fields of a record's head have no checksum in this format (docs/reference/disk.md,
"Checking one record").
"""

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.record import Record, iterate
from tests.crash.trial import MEMORY, Outcome, sweep
from tests.harness.stepped_helpers import SteppedHelpers, stepped_helpers
from tests.harness.stores import Clock, config_of, message, records_of

MESSAGES: Final = 60
BLOCK_BYTES: Final = 512
SETTINGS: Final[dict[str, Any]] = {"mapped_file_size_commit_log": 8192, "mapped_file_size_consume_queue": 200}

KINDS: Final = {"commitlog/": 10, "consumequeue/": 8, "index/": 4, "config/": 3, "checkpoint": 2, "abort": 1, "lock": 1}

Files = dict[str, bytes]
Position = tuple[str, int, int]  # topic, queue id, queue offset


@cache
def consistent_store(is_clean: bool) -> tuple[Files, dict[Position, bytes]]:
    """Return every file of a store, and the body at every position of its queues."""
    with scratch() as root, stepped_helpers() as helpers:
        clock = Clock()
        store = MessageStore(config_of(root, **SETTINGS), clock)
        store.load()
        store.start()
        bodies: dict[Position, bytes] = {}
        state = StateFile(root / "config" / "topics.json", validate=json.loads)
        for number in range(MESSAGES):
            append = message(
                b"%d:" % number + bytes([65 + number % 26]) * (number * 37 % 700), "TU"[number % 2], number % 3
            )
            append.properties = b"KEYS\x01k%d\x02" % number
            store.put(append)
            store.commit()
            bodies[append.topic, append.queue_id, append.queue_offset] = bytes(append.body)
            if number % 20 == 0:
                state.save(b'{"number":%d}' % number)
                clock.now_ms += 61_000
                store.step(clock.now_ms)
                for flusher in helpers.flushers:
                    helpers.sync(flusher)
        if is_clean:
            store.close()
        helpers.forget(store)
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}, bodies


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory for one store, in memory if possible."""
    root = Path(tempfile.mkdtemp(prefix="damage-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield root
    finally:
        shutil.rmtree(root)


def damaged(data: bytes, rng: Random) -> tuple[str, bytes]:
    """Return a description of the damage, and the damaged content of the file."""
    if not data:
        return "one byte more", b"\xff"
    used = len(data.rstrip(b"\0")) or 1
    at = rng.randrange(used if rng.random() < 0.8 else len(data))
    block = at - at % BLOCK_BYTES
    kind = rng.choice(("flip", "flip", "flip", "zero", "misdirect", "cut"))
    if kind == "flip":
        return f"bit of byte {at}", data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == "cut":
        return f"cut at {at}", data[:at]
    other = rng.randrange(used)
    moved = bytes(BLOCK_BYTES) if kind == "zero" else data[other - other % BLOCK_BYTES :][:BLOCK_BYTES]
    end = min(block + len(moved), len(data))
    return f"{kind} block at {block}", data[:block] + moved[: end - block] + data[end:]


def run_seed(seed: int) -> str:
    """Damage one position and run the checks; return the damage and the outcome."""
    rng = Random(seed)
    files, bodies = consistent_store(rng.random() < 0.5)
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    path = rng.choice(sorted(path for path in files if path.startswith(kind)) or ["lock"])
    what, data = damaged(files[path], rng)
    where = f"{path}: {what}"
    with scratch() as root, stepped_helpers() as helpers:
        for other, content in files.items():
            (root / other).parent.mkdir(parents=True, exist_ok=True)
            (root / other).write_bytes(data if other == path else content)
        try:
            return f"{where}: {_read_all(root, bodies, helpers)}"
        except Exception as problem:
            problem.add_note(where)
            raise


def _read_all(root: Path, bodies: dict[Position, bytes], helpers: SteppedHelpers) -> str:
    store = MessageStore(config_of(root, **SETTINGS), Clock())
    try:
        store.load()
    except StoreError as problem:
        helpers.forget(store)
        return f"refused: {problem}"
    store.start()
    found = 0
    for topic, queue_id in sorted({position[:2] for position in bodies}):
        offset = store.min_offset(topic, queue_id) or 0
        for _ in range(4 * MESSAGES):
            result = store.get(topic, queue_id, offset, 32)
            for record in records_of(result):
                found += 1
                assert bodies[topic, queue_id, record.queue_offset] == record.body, f"wrong body: {record}"
            if result.next_begin_offset <= offset:
                break
            offset = result.next_begin_offset
    sent = set(bodies.values())
    for number in range(0, MESSAGES, 7):
        query = helpers.run(store.query_by_key("TU"[number % 2], f"k{number}", 8, 0, 1 << 60))
        for record in (one for data in query.records for one in iterate(data) if isinstance(one, Record)):
            assert bytes(record.body) in sent, f"wrong: {record}"
    store.close()
    helpers.forget(store)
    with_state = StateFile(root / "config" / "topics.json", validate=json.loads)
    try:
        with_state.load()
    except StoreError as problem:
        return f"{found} of {len(bodies)} messages, {problem}"
    return f"{found} of {len(bodies)} messages"


def outcome_of(seed: int) -> Outcome:
    """Return the result of a seed."""
    logging.disable(logging.CRITICAL)
    try:
        run_seed(seed)
    except Exception as problem:  # noqa: BLE001 (a run may fail in any way)
        return Outcome(seed, f"{type(problem).__name__}: {problem} {getattr(problem, '__notes__', '')}")
    return Outcome(seed, "")


def main() -> int:
    """Run the command; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.damage", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1_500, help="number of seeds")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="only this seed, with the log")
    options = parser.parse_args()
    if options.seed is None:
        return 1 if sweep(range(options.first, options.first + options.seeds), options.jobs, outcome_of)[0] else 0
    logging.basicConfig(level=logging.INFO, format="    %(name)s %(message)s", stream=sys.stdout)
    print(run_seed(options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
