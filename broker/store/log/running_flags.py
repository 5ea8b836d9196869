"""The reasons for which new messages are refused. The part that detects a reason sets and clears it.

A reason is cleared when its cause ends; two causes never share a reason. A failed sync lasts until a restart, because
only recovery can determine what is on the disk then; so does the role of a follower. Reads continue under all reasons.

Source: docs/reference/behaviour.md, "Failures"; docs/reference/disk.md, "Retention".
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from skylarkmq.broker.store.files.disk import NO_DESCRIPTORS
from skylarkmq.broker.store.log.append import PutStatus

log = logging.getLogger(__name__)


class RunningFlag(Enum):
    """A reason to refuse messages. The value is shown to operators."""

    CLOSED = "the store is not open"
    FOLLOWER = "this node follows another one, which takes the messages"
    SYNC_FAILED = "a sync failed, a restart is needed to recover the state of the disk"
    DISK_FULL = "the disk is too full"
    LOG_ERROR = "the log cannot be written"
    NO_SEGMENT = "the log's next segment cannot be created"
    QUEUE_ERROR = "queue units cannot be written"
    INDEX_ERROR = "the index cannot be written"
    COPIES_MISSING = "too few synced copies can acknowledge"
    NO_BUFFER = "all buffers of the transient store pool wait for the disk"


_PARTIAL: Final = frozenset((RunningFlag.NO_SEGMENT,))  # the current segment may have space left
_PASSING: Final = frozenset((RunningFlag.NO_BUFFER,))  # short: clients should retry at once
_LASTING: Final = frozenset((RunningFlag.SYNC_FAILED, RunningFlag.FOLLOWER))
_EXPECTED: Final = frozenset((RunningFlag.CLOSED, RunningFlag.FOLLOWER))  # no failure


class RunningFlags:
    """The flags of one store. `changed` is called after each change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._set: dict[RunningFlag, str] = {RunningFlag.CLOSED: ""}
        self._without_descriptors: set[RunningFlag] = set()

    def __contains__(self, flag: RunningFlag) -> bool:
        return flag in self._set

    def set(self, flag: RunningFlag, detail: object = "") -> None:
        """Refuse messages from now on. `detail` is for operators: the error, or the measured value."""
        is_new = flag not in self._set
        self._set[flag] = str(detail)
        if isinstance(detail, OSError) and detail.errno in NO_DESCRIPTORS:
            self._without_descriptors.add(flag)
        else:
            self._without_descriptors.discard(flag)
        if is_new:
            if flag not in _EXPECTED:
                log.warning("new messages are refused reason=%s detail=%s", flag.value, detail)
            self._changed()

    def clear(self, flag: RunningFlag) -> None:
        """Remove this reason."""
        if flag in self._set and flag not in _LASTING:
            del self._set[flag]
            self._without_descriptors.discard(flag)
            if flag not in _EXPECTED:
                log.info("reason to refuse messages cleared reason=%s left=%d", flag.value, len(self._set))
            self._changed()

    @property
    def refusal(self) -> PutStatus | None:
        """The status of every refused put; None: puts are accepted if the segment has space."""
        refusing = self._set.keys() - _PARTIAL
        if refusing and refusing <= _PASSING:
            return PutStatus.SYSTEM_BUSY
        return PutStatus.SERVICE_NOT_AVAILABLE if refusing else None

    @property
    def is_clear(self) -> bool:
        """Whether there is no reason to refuse messages."""
        return not self._set

    @property
    def lacks_descriptors(self) -> bool:
        """Whether every reason is that the process has no file descriptor left."""
        return bool(self._set) and self._without_descriptors >= self._set.keys()

    def reasons(self) -> str:
        """Return every failure with its detail, for /readyz, or "". The role of a follower is not a failure."""
        reasons = ((flag, detail) for flag, detail in self._set.items() if flag is not RunningFlag.FOLLOWER)
        return "; ".join(f"{flag.value} ({detail})" if detail else flag.value for flag, detail in reasons)

    def __repr__(self) -> str:
        return f"<RunningFlags {[flag.name for flag in self._set]}>"
