"""A follower deletes the records of a topic that the other node has deleted, and none of the topic created again."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from tests.broker.store.replica.test_replica_log import Source, follower, log_of
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import Opened, message, opened

OLD = [b"old %d" % number for number in range(6)]
NEW = [b"new %d" % number for number in range(4)]


class Lives:
    """The log of a node on which topic T was deleted after `OLD`, and created again with `NEW`, one queue each time.

    `deleted_at`: where the log ended at the deletion. `ends`: the ends of the records of `NEW`.
    """

    def __init__(self, root: Path) -> None:
        with opened(root) as it:
            it.put(*(message(body) for body in OLD))
            self.deleted_at = it.store.max_physical_offset
            asyncio.run(it.store.delete_topic("T"))
            self.ends = [append.physical_offset + append.size for append in it.put(*(message(body) for body in NEW))]
            self.data = Source(root, it.store.max_physical_offset).data

    def feed(self, it: Opened, end: int | None = None) -> None:
        """Append the log up to byte `end`, and show it."""
        replica = log_of(it)
        replica.append(replica.end, self.data[replica.end : end])
        replica.show(replica.end)


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "master")


def entry(root: Path) -> int:
    """Return the entry of T on disk; 0 if it has none."""
    path = root / "config" / "deletedTopics.json"
    return int(json.loads(path.read_bytes()).get("T", 0)) if path.exists() else 0


def assert_new_life(root: Path) -> None:
    """The follower has all messages of the topic created again, also as a master after a restart."""
    with opened(root) as it:
        it.may_begin_again = True
        assert it.bodies() == NEW
        (append,) = it.put(message(b"next"))
        assert append.queue_offset == len(NEW)


async def test_a_topic_without_later_records_is_deleted(tmp_path: Path, lives: Lives) -> None:
    """The topic created again begins at offset 0, with its first record."""
    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.deleted_at)
        assert await it.store.hidden_tail.delete_topic_below("T", lives.deleted_at) == 1
        assert it.store.queues.topics() == []
        assert entry(it.root) == lives.deleted_at
        lives.feed(it, lives.ends[0])
        assert it.bodies() == NEW[:1]
        lives.feed(it)
    assert_new_life(tmp_path / "f")


async def test_an_undecided_record_becomes_the_first_of_the_new_topic(tmp_path: Path, lives: Lives) -> None:
    """It is visible at once, and a master that starts on this copy continues after it."""
    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.ends[0])
        assert it.bodies() == OLD
        it.arrivals.clear()
        assert await it.store.hidden_tail.delete_topic_below("T", lives.deleted_at) == 1
        assert entry(it.root) == lives.deleted_at
        assert it.bodies() == NEW[:1]
        assert [arrival[:3] for arrival in it.arrivals] == [("T", 0, 1)]
        assert log_of(it)._dispatch.undecided() == frozenset()
    with opened(tmp_path / "f") as it:
        it.may_begin_again = True
        assert it.bodies() == NEW[:1]
        (append,) = it.put(message(b"next"))
        assert append.queue_offset == 1


async def test_records_after_an_undecided_one_continue_the_new_topic(tmp_path: Path, lives: Lives) -> None:
    """The record that was undecided at the deletion keeps its unit; also after a crash."""
    it = Opened(tmp_path / "f", is_follower=True)
    lives.feed(it, lives.ends[0])
    assert await it.store.hidden_tail.delete_topic_below("T", lives.deleted_at) == 1
    lives.feed(it)
    assert it.bodies() == NEW
    it.crash()
    assert_new_life(tmp_path / "f")


@pytest.mark.parametrize("count", range(2, len(NEW) + 1))
async def test_a_topic_with_later_records_keeps_its_queues(tmp_path: Path, lives: Lives, count: int) -> None:
    """The second record of the new topic has confirmed the first one."""
    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.ends[count - 1])
        assert await it.store.hidden_tail.delete_topic_below("T", lives.deleted_at) == 0
        assert entry(it.root) == 0
        lives.feed(it)
        assert it.bodies() == NEW
    assert_new_life(tmp_path / "f")


@pytest.mark.parametrize("count", range(1, len(NEW) + 1))
async def test_records_during_the_save_get_their_units(tmp_path: Path, lives: Lives, count: int) -> None:
    """If the queues have them already, the entry that was being saved is taken back."""
    saving, save = threading.Event(), threading.Event()

    def hold(call: str, path: str) -> None:
        if call == "pwrite" and "deletedTopics" in path:
            saving.set()
            assert save.wait(WAIT_LIMIT_S)

    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.deleted_at)
        it.disk.refuse = hold
        deletion = asyncio.create_task(it.store.hidden_tail.delete_topic_below("T", lives.deleted_at))
        assert await asyncio.to_thread(saving.wait, 10)
        lives.feed(it, lives.ends[count - 1])
        save.set()
        is_undecided = count == 1
        assert await deletion == is_undecided
        assert entry(it.root) == is_undecided * lives.deleted_at
        assert it.bodies() == NEW[:count]
        lives.feed(it)
        assert it.bodies() == NEW
    assert_new_life(tmp_path / "f")


async def test_a_crash_after_the_save_deletes_only_earlier_records(tmp_path: Path, lives: Lives) -> None:
    """The entry is on disk while the queues still exist; a recovery makes them again from the later records."""
    it = Opened(tmp_path / "f", is_follower=True)
    lives.feed(it, lives.deleted_at)
    await it.store.deleted.add("T", lives.deleted_at)
    lives.feed(it, lives.ends[0])
    it.crash()
    with follower(tmp_path / "f") as again:
        assert again.bodies() == NEW[:1]
        lives.feed(again)
    assert_new_life(tmp_path / "f")


async def test_only_records_that_are_shown_are_deleted(tmp_path: Path, lives: Lives) -> None:
    """A byte above what is shown is no end of a deletion: the log may still be truncated there."""
    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.deleted_at)
        assert await it.store.hidden_tail.delete_topic_below("T", lives.ends[-1]) == 1
        assert entry(it.root) == lives.deleted_at
        lives.feed(it)
    assert_new_life(tmp_path / "f")


async def test_an_earlier_undecided_record_is_deleted(tmp_path: Path, lives: Lives) -> None:
    """The topic was deleted again after one message: the queues of both lives are removed."""
    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.ends[0])
        assert await it.store.hidden_tail.delete_topic_below("T", lives.ends[0]) == 1
        assert log_of(it)._dispatch.undecided() == frozenset()
        assert it.store.queues.topics() == []
        assert entry(it.root) == lives.ends[0]


async def test_a_deletion_by_request_deletes_what_is_shown(tmp_path: Path, lives: Lives) -> None:
    """A request to a follower names no byte of the log."""
    with follower(tmp_path / "f") as it:
        lives.feed(it, lives.deleted_at)
        assert await it.store.delete_topic("T") == 1
        lives.feed(it)
    assert_new_life(tmp_path / "f")
