"""A deleted topic stays deleted: after a stop, a kill, a power cut that restores its files, and retention."""

import asyncio
import errno
import json
import logging
import os
import shutil
import threading
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.retention.topic_deletion import SAVES
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import Opened, message, opened


def delete(it: Opened, topic: str = "T") -> int:
    return asyncio.run(it.store.delete_topic(topic))


def ends(root: Path) -> dict[str, int]:
    entries: dict[str, int] = json.loads((root / "config" / "deletedTopics.json").read_bytes())
    return entries


def with_deleted(root: Path, *, sync: bool = False) -> Opened:
    """Return a store with two topics of 60 messages each over two log segments; T is deleted."""
    it = Opened(root, sync=sync)
    for number in range(60):
        it.put(message(b"%0600d" % number, queue_id=number % 2), message(b"%0600d" % number, topic="Other"))
    assert delete(it) == 2
    return it


@pytest.mark.parametrize("crashed", [True, False])
@pytest.mark.parametrize("checkpoint_lost", [True, False])
def test_a_deleted_topic_stays_deleted(tmp_path: Path, *, crashed: bool, checkpoint_lost: bool) -> None:
    """However the process ended, no recovery restores its queues; the other topic is complete."""
    it = with_deleted(tmp_path)
    end = it.store.max_physical_offset
    if crashed:
        it.crash()
    else:
        it.store.close()
    if checkpoint_lost:
        (tmp_path / "checkpoint").unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "consumequeue" / "Other")
        (tmp_path / "abort").touch()
    with opened(tmp_path) as again:
        assert again.store.max_offset("T", 0) is None
        assert not (tmp_path / "consumequeue" / "T").exists()
        assert len(again.bodies("Other")) == 60
        assert ends(tmp_path) == {"T": end}


@pytest.mark.parametrize("crashed", [True, False])
def test_a_topic_created_again_starts_at_0(tmp_path: Path, *, crashed: bool) -> None:
    """Old records of the same name neither precede the new ones nor shift them."""
    it = with_deleted(tmp_path)
    new = [b"new %d" % number for number in range(30)]
    appends = it.put(*(message(body) for body in new))
    assert [append.queue_offset for append in appends] == list(range(30))
    if crashed:
        it.crash()
        shutil.rmtree(tmp_path / "consumequeue")
    else:
        it.store.close()
    with opened(tmp_path) as again:
        assert again.bodies() == new
        assert again.store.max_offset("T", 1) is None
        (append,) = again.put(message(b"next"))
        assert append.queue_offset == 30


def test_a_topic_can_be_deleted_twice(tmp_path: Path) -> None:
    """The later end counts: no message from before it is restored."""
    it = with_deleted(tmp_path)
    it.put(message(b"second life"))
    assert delete(it) == 1
    assert ends(tmp_path) == {"T": it.store.max_physical_offset}
    it.put(message(b"third life"))
    it.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"third life"]


def test_files_restored_by_a_power_cut_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Old queue files among the new ones, or instead of them, are removed; the log provides the new ones."""
    it = Opened(tmp_path)
    for number in range(60):
        it.put(message(b"%0600d" % number, queue_id=number % 2))
    shutil.copytree(tmp_path / "consumequeue" / "T", tmp_path / "saved")
    delete(it)
    it.put(message(b"new"))
    it.crash()
    os.rename(tmp_path / "saved" / "0" / f"{400:020d}", tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}")
    os.rename(tmp_path / "saved" / "1", tmp_path / "consumequeue" / "T" / "1")
    shutil.rmtree(tmp_path / "saved")
    with caplog.at_level(logging.WARNING), opened(tmp_path) as again:
        assert "queues of deleted topics removed queues=2" in caplog.text
        assert again.bodies() == [b"new"]
        assert again.store.max_offset("T", 1) is None


def test_the_entry_is_written_before_queues_are_deleted(tmp_path: Path) -> None:
    """If it cannot be written nothing is deleted, and no later deletion affects the topic."""
    it = Opened(tmp_path)
    it.put(message(b"kept"), message(topic="Other"))

    def refuse(call: str, path: str) -> None:
        if call == "pwrite" and "deletedTopics" in path:
            raise OSError(errno.ENOSPC, "full")

    it.disk.refuse = refuse
    with pytest.raises(OSError, match="full"):
        delete(it)
    it.disk.refuse = lambda call, path: None
    assert it.bodies() == [b"kept"]
    assert delete(it, "Other") == 1
    it.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"kept"]
        assert again.store.max_offset("Other", 0) is None


@pytest.mark.parametrize("during", range(1, SAVES + 1))
async def test_messages_during_a_deletion_are_deleted_with_the_topic(tmp_path: Path, during: int) -> None:
    """While the entry is being saved, queue offsets continue; they restart at 0 once it covers the last such message.

    So a process killed at any time leaves a log whose records all have their place: `during` saves, one message each.
    """
    it = Opened(tmp_path)
    it.put(message(b"old"))
    saving, save = threading.Event(), threading.Semaphore(0)

    def hold(call: str, path: str) -> None:
        if call == "pwrite" and "deletedTopics" in path:
            saving.set()
            assert save.acquire(timeout=WAIT_LIMIT_S)

    it.disk.refuse = hold
    deletion = asyncio.create_task(it.store.delete_topic("T"))
    for number in range(during):
        assert await asyncio.to_thread(saving.wait, 10)
        saving.clear()
        (append,) = it.put(message(b"during"))
        assert append.queue_offset == number + 1
        if number < SAVES - 1:
            save.release()
    save.release(2)  # the last save may block this loop
    assert await deletion == 1
    assert len(it.put(message(b"new"))) == 1
    (entry,) = ends(tmp_path).values()
    assert entry < it.store.max_physical_offset
    it.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"new"]
        assert again.store.max_offset("T", 0) == 1


async def test_a_second_deletion_waits_for_the_first(tmp_path: Path) -> None:
    """Queue offsets do not restart while the entry of another deletion of the same topic is still being saved."""
    it = Opened(tmp_path)
    it.put(message(b"old"))
    saving, save = threading.Event(), threading.Event()

    def hold(call: str, path: str) -> None:
        if call == "pwrite" and "deletedTopics" in path:
            saving.set()
            assert save.wait(timeout=WAIT_LIMIT_S)

    it.disk.refuse = hold
    deletions = [asyncio.create_task(it.store.delete_topic("T")) for _ in range(2)]
    assert await asyncio.to_thread(saving.wait, 10)
    (append,) = it.put(message(b"during"))
    assert append.queue_offset == 1
    save.set()
    assert await asyncio.gather(*deletions) == [1, 0]
    assert len(it.put(message(b"new"))) == 1
    it.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"new"]


def test_an_entry_is_lowered_to_the_end_of_the_log(tmp_path: Path) -> None:
    """A power cut may take the end of the log; messages that are put there afterwards are new."""
    it = Opened(tmp_path)
    it.put(message(b"old", topic="Other"), message(b"old"))
    end = it.store.max_physical_offset
    delete(it)
    it.crash()
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.write(bytes(end))
    with opened(tmp_path) as again:
        assert again.store.max_physical_offset == 0
        assert ends(tmp_path) == {"T": 0}
        again.put(message(b"new"))
    with opened(tmp_path) as again:
        assert again.bodies() == [b"new"]


def test_unflushed_messages_are_deleted_too(tmp_path: Path) -> None:
    """A message that was written and not flushed when its topic was deleted never becomes visible."""
    it = Opened(tmp_path, sync=True)
    it.disk.syncs.clear()
    it.put(message(b"on its way"))
    assert delete(it) == 1
    it.disk.syncs.set()
    it.crash()
    with opened(tmp_path, sync=True) as again:
        assert again.store.max_offset("T", 0) is None
        assert again.arrivals == []


def test_an_entry_is_removed_when_the_log_start_has_passed_it(tmp_path: Path) -> None:
    """Exactly when the log begins at its end: the log then has no message of the deleted topic."""
    with opened(tmp_path) as it:
        it.put(message(b"old"))
        delete(it)
        (end,) = ends(tmp_path).values()
        it.store.deleted.follow(end - 1, 0)
        assert it.store.deleted.covers("T", end - 1)
        it.store.deleted.follow(end, 0)
        assert not it.store.deleted.covers("T", 0)
        it.store._parts._helper.submit(lambda: None).result(WAIT_LIMIT_S)
        assert ends(tmp_path) == {}
        assert repr(it.store.deleted) == "<DeletedTopics 0>"
        it.must_be_consistent = False  # the log does not begin at that offset


def test_a_failed_removal_of_an_entry_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next start removes it."""
    with opened(tmp_path) as it:
        it.put(message(b"old"))
        delete(it)

        def refuse(call: str, path: str) -> None:
            if "deletedTopics" in path:
                raise OSError(errno.EROFS, "read-only")

        it.disk.refuse = refuse
        it.store.deleted.follow(1 << 40, 0)
        it.store._parts._helper.submit(lambda: None).result(WAIT_LIMIT_S)
        assert "deleted topics not saved" in caplog.text
        it.disk.refuse = lambda call, path: None


def test_light_queues_are_never_removed(tmp_path: Path) -> None:
    """The deletion of a topic with a light queue's name has no effect."""
    (tmp_path / "consumequeue" / "%LMQ%a" / "0").mkdir(parents=True)
    with opened(tmp_path) as it:
        assert delete(it, "%LMQ%a") == 0
        assert (tmp_path / "consumequeue" / "%LMQ%a" / "0").is_dir()


@pytest.mark.parametrize("data", [b"[]", b'{"T":"x"}', b"{"])
def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path, data: bytes) -> None:
    """Without a backup the store does not open."""
    with opened(tmp_path) as it:
        for topic in ("T", "U"):
            it.put(message(topic=topic))
            delete(it, topic)
    path = tmp_path / "config" / "deletedTopics.json"
    path.write_bytes(data)
    with opened(tmp_path) as it:
        it.must_be_consistent = False  # the damaged file still exists
        assert list(it.store.deleted.ends) == ["T"]
    path.with_suffix(".json.bak").write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        Opened(tmp_path)


def test_empty_queue_directories_are_removed(tmp_path: Path) -> None:
    """Those that a power cut left empty are removed; other files stay, without an error."""
    (tmp_path / "consumequeue" / "T" / "7").mkdir(parents=True)
    (tmp_path / "consumequeue" / "U").mkdir()
    (tmp_path / "consumequeue" / "U" / "README").write_text("mine")
    with opened(tmp_path) as it:
        it.put(message(), message(topic="U"))
        assert (delete(it), delete(it, "U")) == (2, 1)
        assert not (tmp_path / "consumequeue" / "T").exists()
        assert os.listdir(tmp_path / "consumequeue" / "U") == ["README"]


async def test_waiting_messages_of_the_topic_count_as_deleted(tmp_path: Path) -> None:
    """A message for the topic in another queue: its position in the log decides, even if the topic had no queue."""
    with opened(tmp_path) as it:
        (before,) = it.put(message(topic="Elsewhere"))
        assert await it.store.delete_topic("T") == 0
        assert not it.store.deleted.covers("T", before.physical_offset)
        assert await it.store.delete_topic("T", may_have_delayed=True) == 0
        (behind,) = it.put(message(topic="Elsewhere"))
        assert it.store.deleted.covers("T", before.physical_offset)
        assert not it.store.deleted.covers("T", behind.physical_offset)
        assert not it.store.deleted.covers("Elsewhere", before.physical_offset)
