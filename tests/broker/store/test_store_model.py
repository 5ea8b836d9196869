"""The store, compared with a dict of lists: after any puts, reads, stops and cuts its queues equal the model."""

import shutil
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.queue_reads import GetStatus
from tests.harness.simulated_disk import SimulatedDisk
from tests.harness.stepped_helpers import stepped_helpers
from tests.harness.stores import Clock, Opened, config_of, message, records_of

pytestmark = pytest.mark.fuzz

QUEUES = st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 2))
SIZES = st.one_of(st.integers(0, 200), st.integers(5_000, 20_000))


class StoreModel(RuleBasedStateMachine):
    """Random operations on a store. A crash keeps what was written, as the kernel does when a process dies."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.queues: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.counter = 0
        self.it = Opened(self.root)

    def body(self, size: int) -> bytes:
        self.counter += 1
        return (b"%d:" % self.counter).ljust(size, b".")

    @rule(batch=st.lists(st.tuples(QUEUES, SIZES, st.sampled_from([0, 0, 0, 4, 8, 12])), min_size=1, max_size=12))
    def put(self, batch: list[tuple[tuple[str, int], int, int]]) -> None:
        for (topic, queue_id), size, sys_flag in batch:
            body = self.body(size)
            self.it.store.put(message(body, topic, queue_id, sys_flag=sys_flag))
            if sys_flag in {0, 8}:
                self.queues[topic, queue_id].append(body)
        assert {append.status for append in self.it.store.commit()} == {PutStatus.PUT_OK}

    @rule(queue=QUEUES, sizes=st.lists(SIZES, min_size=1, max_size=3))
    def put_batch(self, queue: tuple[str, int], sizes: list[int]) -> None:
        bodies = [self.body(size) for size in sizes]
        self.it.store.put_batch([message(body, *queue) for body in bodies])
        self.it.store.commit()
        self.queues[queue] += bodies

    @rule(queue=QUEUES, place=st.floats(0, 1), count=st.integers(1, 40))
    def get(self, queue: tuple[str, int], place: float, count: int) -> None:
        expected = self.queues[queue]
        offset = int(place * len(expected))
        result = self.it.store.get(*queue, offset, count)
        found = [bytes(record.body) for record in records_of(result)]
        assert found == expected[offset : result.next_begin_offset]
        assert (result.status is GetStatus.FOUND) == (offset < len(expected))

    @rule(step_ms=st.integers(0, 70_000))
    def time_passes(self, step_ms: int) -> None:
        self.it.clock.now_ms += step_ms
        self.it.store.step(self.it.clock.now_ms)

    @precondition(lambda self: self.queues)
    @rule(topic=st.sampled_from(["T", "U"]))
    def stop_and_start(self, topic: str) -> None:
        now = self.it.clock.now_ms
        self.it.store.close()
        self.it = Opened(self.root)
        self.it.clock.now_ms = now

    @precondition(lambda self: self.queues)
    @rule()
    def crash_and_start(self) -> None:
        now = self.it.clock.now_ms
        self.it.crash()
        self.it = Opened(self.root)
        self.it.clock.now_ms = now

    @invariant()
    def ends_agree(self) -> None:
        for (topic, queue_id), bodies in self.queues.items():
            assert (self.it.store.max_offset(topic, queue_id) or 0) == len(bodies)

    def teardown(self) -> None:
        for (topic, queue_id), bodies in self.queues.items():
            assert self.it.bodies(topic, queue_id) == bodies
        self.it.store.close()
        shutil.rmtree(self.root)


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=25, stateful_step_count=25)


class CutModel(RuleBasedStateMachine):
    """SYNC_FLUSH on a disk that loses unsynced data: after a cut each queue is a prefix of the sent messages and
    contains every acknowledged one."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.helpers = self.resources.enter_context(stepped_helpers())
        scratch = tempfile.mkdtemp(prefix="cut-model-")
        self.resources.callback(shutil.rmtree, scratch)
        self.disk = SimulatedDisk(Path(scratch))
        self.clock = Clock()
        self.config = config_of(Path(scratch) / "store", sync=True, mapped_file_size_commit_log=4096)
        self.queues: defaultdict[tuple[str, int], list[Append]] = defaultdict(list)
        self.counter = 0
        self.open()

    def open(self) -> None:
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        self.store.load()
        for queue, sent in self.queues.items():
            kept = self.store.max_offset(*queue) or 0
            assert kept >= sum(append.status is PutStatus.PUT_OK for append in sent)
            del sent[kept:]
            for append in sent:
                append.status = PutStatus.PUT_OK  # recovery has made it durable
        self.store.start()

    @rule(batch=st.lists(st.tuples(QUEUES, st.integers(0, 900)), min_size=1, max_size=6))
    def put(self, batch: list[tuple[tuple[str, int], int]]) -> None:
        for queue, size in batch:
            self.counter += 1
            append = message((b"%d:" % self.counter).ljust(size, b"."), *queue)
            self.store.put(append)
            self.queues[queue].append(append)
        self.store.commit()

    @rule()
    def flush(self) -> None:
        self.helpers.sync(self.helpers.flushers[0])
        self.store.step(self.clock.now_ms)

    @rule(step_ms=st.integers(0, 4_000))
    def time_passes(self, step_ms: int) -> None:
        self.clock.now_ms += step_ms
        self.flush()
        self.helpers.sync(self.helpers.flushers[1])

    @rule(seed=st.integers(0, 1 << 32), is_cut=st.booleans())
    def end_and_start(self, seed: int, is_cut: bool) -> None:
        self.helpers.forget(self.store)
        if is_cut:
            self.disk.cut(Random(seed))
        self.open()

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.helpers.forget(self.store)
        self.open()

    @invariant()
    def bodies_agree(self) -> None:
        for queue, sent in self.queues.items():
            result = self.store.get(*queue, 0, 32)
            found = [bytes(record.body) for record in records_of(result)]
            assert found == [bytes(append.body) for append in sent[: len(found)]]

    def teardown(self) -> None:
        self.helpers.forget(self.store)
        self.resources.close()


TestCutModel = pytest.mark.crash(CutModel.TestCase)
TestCutModel.settings = settings(max_examples=40, stateful_step_count=25)
