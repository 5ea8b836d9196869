"""The store against a dict of lists: whatever is put, read, stopped and cut, the queues are what the model says."""

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.store.append import PutStatus
from broker.store.reading import GetStatus
from tests.harness.stores import Opened, message, records_of

QUEUES = st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 2))
SIZES = st.one_of(st.integers(0, 200), st.integers(5_000, 20_000))


class StoreModel(RuleBasedStateMachine):
    """Both flush types; a crash keeps what was written, as the kernel does when a process dies."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.queues: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.counter = 0
        self.it = Opened(self.root)

    def body(self, size: int) -> bytes:
        self.counter += 1
        return (b"%d:" % self.counter).ljust(size, b".")

    @rule(turn=st.lists(st.tuples(QUEUES, SIZES, st.sampled_from([0, 0, 0, 4, 8, 12])), min_size=1, max_size=12))
    def put(self, turn: list[tuple[tuple[str, int], int, int]]) -> None:
        for (topic, queue_id), size, sys_flag in turn:
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
TestStoreModel.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
