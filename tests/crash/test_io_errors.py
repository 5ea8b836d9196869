"""An I/O error at each system call of a workload: no false acknowledgment and no unexpected error."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from tests.crash.expected_state import log_of
from tests.crash.trial import MEMORY
from tests.harness.faulty_disk import PROBLEMS, SHORT_WRITE, FaultyDisk
from tests.harness.simulated_disk import SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers, stepped_helpers
from tests.harness.stores import Clock, config_of, message, records_of

pytestmark = pytest.mark.crash

STEPS: Final = 14
STRIDE: Final = int(os.environ.get("SKYLARK_ERRORS_STRIDE", "5"))  # step between tested calls, except for a single EIO
BURST: Final = 40  # consecutive failing calls of a temporarily full disk
REFUSALS: Final = {
    PutStatus.SERVICE_NOT_AVAILABLE,
    PutStatus.UNKNOWN_ERROR,
    PutStatus.CREATE_MAPPED_FILE_FAILED,
}


class Workload:
    """Two sessions of a store: rolls of log and queues, flushes, checkpoint, state files, a topic deletion, a stop."""

    def __init__(self, disk: FaultyDisk, scratch: Path, helpers: SteppedHelpers, *, sync: bool) -> None:
        self._disk = disk
        self._helpers = helpers
        self._sync = sync
        self._clock = Clock()
        self._config = config_of(
            scratch / "store",
            sync=sync,
            mapped_file_size_commit_log=2048,
            mapped_file_size_consume_queue=60,
        )
        self._state = StateFile(scratch / "store" / "config" / "topics.json", validate=json.loads, disk=disk)
        self._saved = 0
        self._was_cut = False
        self._tried = 0
        self._waiting: list[Append] = []
        self.acknowledged: list[Append] = []
        self.refused = 0

    def run(self) -> None:
        """Run both sessions; a start may only raise StoreError."""
        for session in range(2):
            store = self._start()
            if store is None:
                continue
            self._run_session(store, session)
            store.close()
            self._note()
            self._helpers.forget(store)
            if self._disk.has_lost_pages:
                self._disk.cut(Random(session))  # only a reboot reveals the content of the disk
                self._was_cut = True

    def _start(self) -> MessageStore | None:
        store = MessageStore(self._config, self._clock, disk=self._disk)
        try:
            store.load()
            store.start()
        except StoreError:
            store.close()
            self._helpers.forget(store)
            return None
        return store

    def _run_session(self, store: MessageStore, session: int) -> None:
        for step in range(STEPS):
            self._put(store, session, step)
            if step % 4 == 3:
                self._helpers.make_segments()
            if step % 3 == 2 or step == 10:
                for flusher in self._helpers.flushers:
                    self._helpers.sync(flusher)
            self._clock.now_ms += 1_000 if step != 10 else 61_000
            store.step(self._clock.now_ms)
            self._note()
            self._get(store)
            if step % 5 == 4:
                self._save()
            if step == 12:
                self._delete_topic(store)

    def _put(self, store: MessageStore, session: int, step: int) -> None:
        appends = [
            message(b"%d-%d-%d" % (session, step, number) + b"." * size, "T", number % 2)
            for number, size in enumerate((5, 300, 0))
        ]
        for append in appends[:2]:
            store.put(append)
        store.put_batch(appends[2:])
        store.commit()
        self._waiting += appends

    def _delete_topic(self, store: MessageStore) -> None:
        store.put(message(topic="U"))
        store.commit()
        self._helpers.sync(self._helpers.flushers[0])
        store.step(self._clock.now_ms)
        try:
            self._helpers.run(store.delete_topic("U"))
        except OSError:
            return  # the error is reported: nothing was promised

    def _note(self) -> None:
        waiting, self._waiting = self._waiting, []
        for append in waiting:
            if append.status is PutStatus.PUT_OK:
                self.acknowledged.append(append)
            elif append.status is PutStatus.PENDING:
                self._waiting.append(append)
            else:
                assert append.status in REFUSALS, append.status
                self.refused += 1

    def _get(self, store: MessageStore) -> None:
        for queue_id in (0, 1):
            for record in records_of(store.get("T", queue_id, store.min_offset("T", queue_id) or 0, 32)):
                assert record.queue_id == queue_id

    def _save(self) -> None:
        self._tried += 1
        try:
            self._state.save(b'{"saves":%d}' % self._tried)
        except OSError:
            return
        self._saved = self._tried

    def check(self, *, is_cut: bool) -> None:
        """Check what a later process finds on the repaired disk: under SYNC_FLUSH also after a power cut."""
        store = MessageStore(self._config, self._clock, disk=self._disk)
        store.load()
        found = {(one.topic, one.queue_id, one.queue_offset): one.body for one in log_of(store)}
        if self._sync or not (is_cut or self._was_cut):
            for one in self.acknowledged:
                assert found.get((one.topic, one.queue_id, one.queue_offset)) == one.body, one
        self._helpers.forget(store)
        data = self._state.load()
        assert self._saved <= (json.loads(data)["saves"] if data else 0) <= self._tried


@contextmanager
def workload(sync: bool, fail_at: int = -1, problem: int = 0, length: int = 1) -> Iterator[tuple[Workload, FaultyDisk]]:
    """Yield a workload on a disk that fails at the given call."""
    scratch = Path(tempfile.mkdtemp(prefix="io-errors-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        with stepped_helpers() as helpers:
            disk = FaultyDisk(scratch, fail_at, problem, length)
            yield Workload(disk, scratch, helpers, sync=sync), disk
    finally:
        shutil.rmtree(scratch)


def calls_of(sync: bool) -> list[str]:
    """Return the system calls of a workload without errors."""
    with workload(sync) as (work, disk):
        work.run()
        assert work.refused == 0
        assert len(work.acknowledged) == 2 * STEPS * 3
        made = list(disk.made)
        work.check(is_cut=True)
        return made


def attempt(sync: bool, fail_at: int, problem: int, length: int) -> None:
    """Run with an error, and check the result: with a power cut for odd call numbers, without one for even ones."""
    with workload(sync, fail_at, problem, length) as (work, disk):
        work.run()
        disk.heal()
        if fail_at % 2:
            disk.cut(Random(fail_at))
        work.check(is_cut=bool(fail_at % 2))


@pytest.mark.parametrize("sync", [True, False], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=["EIO", "ENOSPC", "EROFS", "short write"])
@pytest.mark.parametrize("length", [1, BURST], ids=["one call", "for a while"])
def test_a_failed_system_call_causes_no_false_acknowledgment(sync: bool, problem: int, length: int) -> None:
    """If any call fails, alone or with all later ones, no acknowledgment is false, and a start finds all messages."""
    made = calls_of(sync)
    step = 1 if STRIDE == 1 or (problem == errno.EIO and length == 1) else STRIDE * (1 if length == 1 else 3)
    failed = []
    for number in range(0, len(made), step):
        if problem == SHORT_WRITE and made[number] != "write_some":
            continue
        try:
            attempt(sync, number, problem, length)
        except Exception as failure:  # noqa: BLE001 (a failing store may raise any error)
            failed.append(f"call {number} ({made[number]}) of {len(made)}: {failure!r}")
    assert not failed, "\n".join(failed)


def test_the_workload_makes_every_system_call() -> None:
    """The workload makes every system call of the disk, so each of them can fail."""
    system_calls = {
        name
        for name in vars(Disk)
        if not name.startswith("_") and name in vars(SimulatedDisk) and name not in {"map", "used_percent"}
    }
    assert set(calls_of(sync=True)) | set(calls_of(sync=False)) == system_calls
