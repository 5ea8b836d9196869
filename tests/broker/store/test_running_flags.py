"""Reasons to refuse messages: each is set and cleared by its own cause, and all of them are told."""

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.running_flags import RunningFlag, RunningFlags


def flags() -> tuple[RunningFlags, list[None]]:
    """Those of an open store, and one entry for each change."""
    changes: list[None] = []
    it = RunningFlags(lambda: changes.append(None))
    it.clear(RunningFlag.CLOSED)
    changes.clear()
    return it, changes


def refused(it: RunningFlags) -> bool:
    assert it.refusal in {None, PutStatus.SERVICE_NOT_AVAILABLE}
    return it.refusal is not None


def test_a_store_that_is_not_open_refuses() -> None:
    """From the beginning, and until it is opened."""
    it = RunningFlags(lambda: None)
    assert refused(it)
    it.clear(RunningFlag.CLOSED)
    assert (refused(it), it.reasons()) == (False, "")


def test_reasons_do_not_clear_each_other() -> None:
    """Messages are refused until the last reason is gone."""
    it, changes = flags()
    it.set(RunningFlag.DISK_FULL, "91 percent")
    it.set(RunningFlag.QUEUE_ERROR)
    assert it.reasons() == "the disk is too full (91 percent); queue units cannot be written"
    it.clear(RunningFlag.DISK_FULL)
    assert refused(it)
    it.clear(RunningFlag.QUEUE_ERROR)
    assert not refused(it)
    assert len(changes) == 4


def test_what_is_known_already_changes_nothing() -> None:
    """Setting twice is setting once, with the newer detail; clearing what is not set is nothing."""
    it, changes = flags()
    it.set(RunningFlag.DISK_FULL, "91 percent")
    it.set(RunningFlag.DISK_FULL, "92 percent")
    it.clear(RunningFlag.LOG_ERROR)
    assert (it.reasons(), len(changes)) == ("the disk is too full (92 percent)", 1)
    assert repr(it) == "<RunningFlags ['DISK_FULL']>"


def test_a_failed_sync_stays() -> None:
    """Nothing in this process can repair it."""
    it, _ = flags()
    it.set(RunningFlag.SYNC_FAILED)
    it.clear(RunningFlag.SYNC_FAILED)
    assert RunningFlag.SYNC_FAILED in it
    assert refused(it)


def test_without_another_segment_there_may_be_room() -> None:
    """Then nothing is refused from the start, and yet it is a reason to be told."""
    it, _ = flags()
    it.set(RunningFlag.NO_SEGMENT)
    assert not refused(it)
    assert it.reasons() == "the log's next segment cannot be created"
