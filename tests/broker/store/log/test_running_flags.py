"""Reasons to refuse messages: each is set and cleared by its own cause, and all of them are reported."""

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.log.running_flags import RunningFlag, RunningFlags


def flags() -> tuple[RunningFlags, list[None]]:
    """Return the flags of an open store, and a list with one entry per change."""
    changes: list[None] = []
    it = RunningFlags(lambda: changes.append(None))
    it.clear(RunningFlag.CLOSED)
    changes.clear()
    return it, changes


def refused(it: RunningFlags) -> bool:
    assert it.refusal in {None, PutStatus.SERVICE_NOT_AVAILABLE}
    return it.refusal is not None


def test_a_store_that_is_not_open_refuses_messages() -> None:
    """Messages are refused until the store is opened."""
    it = RunningFlags(lambda: None)
    assert refused(it)
    it.clear(RunningFlag.CLOSED)
    assert (refused(it), it.reasons()) == (False, "")


def test_reasons_do_not_clear_each_other() -> None:
    """Messages are refused until the last reason is cleared."""
    it, changes = flags()
    it.set(RunningFlag.DISK_FULL, "91 percent")
    it.set(RunningFlag.QUEUE_ERROR)
    assert it.reasons() == "the disk is too full (91 percent); queue units cannot be written"
    it.clear(RunningFlag.DISK_FULL)
    assert refused(it)
    it.clear(RunningFlag.QUEUE_ERROR)
    assert not refused(it)
    assert len(changes) == 4


def test_repeated_changes_have_no_effect() -> None:
    """A flag that is set twice keeps the newer detail; clearing a flag that is not set does nothing."""
    it, changes = flags()
    it.set(RunningFlag.DISK_FULL, "91 percent")
    it.set(RunningFlag.DISK_FULL, "92 percent")
    it.clear(RunningFlag.LOG_ERROR)
    assert (it.reasons(), len(changes)) == ("the disk is too full (92 percent)", 1)
    assert repr(it) == "<RunningFlags ['DISK_FULL']>"


def test_a_failed_sync_is_never_cleared() -> None:
    """This process cannot repair it."""
    it, _ = flags()
    it.set(RunningFlag.SYNC_FAILED)
    it.clear(RunningFlag.SYNC_FAILED)
    assert RunningFlag.SYNC_FAILED in it
    assert refused(it)


def test_a_missing_next_segment_does_not_refuse_messages() -> None:
    """The current segment may have space left, but the reason is reported."""
    it, _ = flags()
    it.set(RunningFlag.NO_SEGMENT)
    assert not refused(it)
    assert it.reasons() == "the log's next segment cannot be created"
