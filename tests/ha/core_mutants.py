"""The core with one rule taken out: each of these makes the simulator fail, sooner or later.

A mutant replaces methods of the core, or of the simulation, while the context lasts. Names begin with the number of the
rule (`skylarkmq.broker.ha.core`). Some need a rare order of events: the model of the rules finds those by exploration.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from skylarkmq.broker.ha.core.commit import CommitRule
from skylarkmq.broker.ha.core.decisions import Decisions, Outcome
from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import EndSet, HaState, Send, Show
from skylarkmq.broker.ha.core.follower import Follower
from skylarkmq.broker.ha.core.in_sync import Progresses
from skylarkmq.broker.ha.core.leader import Leader
from skylarkmq.broker.ha.core.local import Local
from skylarkmq.broker.ha.core.messages import Ack
from tests.ha.simulated_decisions import SimulatedDecisions
from tests.ha.simulated_machine import Machine, Process


def _promise_only_in_memory(self: Local, epoch: int, then: Callable[[], None]) -> None:
    self._last = HaState(max(epoch, self._last.promised), self._last.store_id, self._last.committed)
    then()


def _swap_without_comparison(self: SimulatedDecisions, caller: Any, request: Any) -> None:
    if isinstance(request, msgspec.Struct) and hasattr(request, "revision"):
        request = msgspec.structs.replace(request, revision=self.revision)
    _ASK(self, caller, request)


def _forget_unknown_swaps(self: Decisions, record: Any, revision: int) -> Outcome:
    outcome = _SEEN(self, record, revision)
    self._attempts.clear()
    return outcome._replace(open=False)


def _settle_at_once(self: Leader, outcome: Outcome, now: float) -> None:
    if self._renewal is None and not outcome.moved and self._commit:
        self._commit.settle(self._commit.in_sync)
    _LEADER_OUTCOME(self, outcome, now)


def _removal_counts_at_once(self: CommitRule, in_sync: frozenset[str]) -> None:
    self.counted = self.in_sync = in_sync


def _advance_without_missing(self: CommitRule) -> bool:
    ends = [self._synced[store_id] for store_id in self.counted if store_id in self._synced]
    if len(self.in_sync) < self._minimum or not ends or min(ends) < max(self._term_end, self.committed + 1):
        return False
    self.committed = min(ends)
    return True


def _advance_before_the_epoch_record(self: CommitRule) -> bool:
    self._term_end = 0
    return _ADVANCE(self)


def _show_all(self: Follower, committed: int) -> None:
    if self._local.synced > self._shown:
        self._shown = self._local.synced
        self._local.effects.append(Show(self._local.synced))


def _below_the_minimum(
    self: Progresses, in_sync: frozenset[str], own: str, minimum: int, may_join: frozenset[str], now: float
) -> frozenset[str]:
    return _WANTED(self, in_sync, own, 1, may_join, now)


def _common_end_by_length(self: EpochHistory, end: int, other: EpochHistory, other_end: int) -> int:
    return min(end, other_end)


def _truncate_in_memory(self: Process, end: int) -> None:
    disk = self.machine.disk
    if self.alive:
        stale = bytes(disk.log[end:])
        del disk.log[end:]
        self.machine.stale = (end, stale)  # type: ignore[attr-defined]
        disk.synced = end
        self.post(EndSet(end))


def _start_with_stale_bytes(self: Machine) -> None:
    end, stale = self.__dict__.pop("stale", (0, b""))
    if stale and len(self.disk.log) == end and self.process is None:
        self.disk.log += stale
    _START(self)


def _acknowledge_written(self: Follower, link: Any) -> None:
    if not self._refuses(link, link.epoch):
        self._local.effects.append(Send(link.number, Ack(link.epoch, self._local.written, self._local.written)))


def _keep_the_store_id(self: Process, *, new_store: bool) -> None:
    if new_store:
        self.machine.disk.cut_power(0.0)
    _RESTART(self, new_store=False)


_ASK: Final = SimulatedDecisions.ask
_SEEN: Final = Decisions._seen
_LEADER_OUTCOME: Final = Leader.on_outcome
_ADVANCE: Final = CommitRule.advance
_WANTED: Final = Progresses.wanted
_START: Final = Machine.start
_RESTART: Final = Process._restart

MUTANTS: Final[dict[str, list[tuple[type, str, Any]]]] = {
    "1-promise-is-not-stored": [(Local, "promise", _promise_only_in_memory)],
    "1-lower-epochs-are-not-refused": [(Follower, "_refuses", lambda self, link, epoch: False)],
    "2-swap-without-comparison": [(SimulatedDecisions, "ask", _swap_without_comparison)],
    "3-unknown-swaps-are-forgotten": [
        (Decisions, "_seen", _forget_unknown_swaps),
        (Leader, "on_outcome", _settle_at_once),
    ],
    "3-addition-counts-after-the-response": [(CommitRule, "propose", lambda self, in_sync: None)],
    "3-removal-counts-before-the-response": [(CommitRule, "propose", _removal_counts_at_once)],
    "3-stores-without-acknowledgement-are-left-out": [(CommitRule, "advance", _advance_without_missing)],
    "3-a-store-that-lacks-committed-bytes-is-added": [(CommitRule, "has_committed", lambda self, store_id: True)],
    "4-followers-show-what-they-have": [(Follower, "_show", _show_all)],
    "5-the-set-shrinks-below-the-minimum": [(Progresses, "wanted", _below_the_minimum)],
    "6-commits-before-the-epoch-record": [(CommitRule, "advance", _advance_before_the_epoch_record)],
    "7-truncation-by-length": [(EpochHistory, "common_end", _common_end_by_length)],
    "7-truncation-in-memory": [(Process, "_end_set", _truncate_in_memory), (Machine, "start", _start_with_stale_bytes)],
    "8-written-is-acknowledged": [(Follower, "_acknowledge", _acknowledge_written)],
    "8-a-store-that-lost-bytes-keeps-its-id": [(Process, "_restart", _keep_the_store_id)],
}  # fmt: skip


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """Run the core without one rule."""
    patches = [patch.object(owner, attribute, changed) for owner, attribute, changed in MUTANTS[name]]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()
