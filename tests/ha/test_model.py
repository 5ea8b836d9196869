"""The model of replication: no finding with all rules, a finding without any one of them, and nothing holds vacuously.

`python -m tests.ha.model` explores 10^7 states with the same code.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.ha.explorer import Exploration, explore
from tests.ha.mutants import CALM, MUTANTS, POWER_CUT, SCOPES
from tests.ha.rules import Rules, Scope
from tests.ha.state import ALL_NODES, FIRST_MESSAGE, LEADER, LOST, SIZE, State
from tests.ha.transitions import Model

pytestmark = pytest.mark.crash

LIMIT: Final = 300_000
FULL_STATES: Final = 125_000
BROKEN: Final = {
    "promise-forgotten": "acknowledged_is_in_every_successor",
    "old-data-accepted": "copies_agree",
    "old-acks-counted": "acknowledged_is_in_every_successor",
    "blind-swap": "acknowledged_is_in_every_successor",
    "outsider-campaigns": "acknowledged_is_in_every_successor",
    "term-resumed": "copies_agree",
    "lost-answer-is-no": "acknowledged_is_in_every_successor",
    "unchanged-is-no": "acknowledged_is_in_every_successor",
    "removal-counts-early": "acknowledged_is_in_every_successor",
    "addition-counts-late": "acknowledged_is_in_every_successor",
    "added-far-behind": "acknowledged_is_in_every_successor",
    "added-before-epoch-record": "acknowledged_is_in_every_successor",
    "silent-left-out": "acknowledged_is_in_every_successor",
    "own-sync-ignored": "acknowledged_is_in_every_successor",
    "visible-early": "visible_is_committed",
    "below-min": "set_keeps_min_members",
    "no-epoch-record": "copies_agree",
    "truncation-unsynced": "copies_agree",
    "truncated-below-mark": "truncation_respects_the_mark",
    "acks-written": "acknowledged_is_in_every_successor",
    "store-id-kept": "acknowledged_is_in_every_successor",
    "queue-offsets-of-dispatched": "queue_offsets_are_unique",
}
"""The invariant that each mutant breaks first."""


def test_every_state_of_two_terms_keeps_all_invariants() -> None:
    """With all rules, no state of two terms with lost answers and late frames breaks an invariant."""
    result = explore(Model(CALM, Rules()), LIMIT)
    assert (result.found, result.is_complete) == ("", True)
    assert result.states > 75_000


def test_the_full_scope_keeps_all_invariants() -> None:
    """With all rules, the states nearest to the start of the full scope break no invariant."""
    result = explore(Model(Scope(), Rules()), FULL_STATES)
    assert result.found == ""
    assert result.states >= FULL_STATES


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_rule_is_found(name: str) -> None:
    """Without one rule, a trace leads to a broken invariant."""
    mutant = MUTANTS[name]
    result = explore(Model(mutant.scope, mutant.rules), LIMIT)
    assert result.found == BROKEN[name]
    assert len(result.trace) == result.depth


# nothing holds vacuously


def _reach(scope: Scope, goal: Callable[[State], bool]) -> Exploration:
    result = explore(Model(scope, Rules()), LIMIT, goal)
    assert result.found == "goal", f"not reached: {result.states} states, complete={result.is_complete}"
    return result


def test_an_acknowledged_message_survives_a_change_of_leaders() -> None:
    """A message that the first leader has acknowledged is below the epoch record that its successor has committed."""

    def survives(state: State) -> bool:
        successor = state.record.leader
        return (
            state.decided.find(2) > 1
            and successor != LOST
            and state.nodes[successor].role == LEADER
            and any(node.role == LEADER and node.term == 1 and node.committed > 1 for node in state.nodes)
        )

    trace = _reach(CALM, survives).trace
    assert any(str(step).startswith("A commits 2 records") for step, _ in trace)


def test_an_old_leader_may_acknowledge_what_its_successor_has_committed() -> None:
    """A late acknowledgement lets an old leader commit after its successor, but only what the successor has as well."""

    def overtaken(state: State) -> bool:
        return 2 in state.decided and any(node.role == LEADER and node.term == 1 for node in state.nodes)

    trace = _reach(CALM, lambda state: overtaken(state) and state.decided.find(2) == _mark_of_term_1(state)).trace
    assert "A commits" in str(trace[-1][0]) or "B commits" in str(trace[-1][0])


def _mark_of_term_1(state: State) -> int:
    return max((node.committed for node in state.nodes if node.role == LEADER and node.term == 1), default=0)


def test_a_truncation_can_be_interrupted_by_a_power_cut() -> None:
    """A truncation waits for its sync; a power cut before it brings the old records back."""
    result = _reach(POWER_CUT, lambda state: any(node.old_log for node in state.nodes))
    state = result.trace[-1][1]
    number = next(number for number, node in enumerate(state.nodes) if node.old_log)
    cut = [after for step, after in Model(POWER_CUT, Rules()).steps(state) if step.text.startswith("power cut")]
    assert state.nodes[number].old_log in {after.nodes[number].log for after in cut}


def test_a_set_of_one_commits() -> None:
    """With a minimum of 1, a leader alone commits a message."""
    _reach(
        replace(CALM, minimum=1),
        lambda state: SIZE[state.record.members] == 1 and any(record >= FIRST_MESSAGE for record in state.decided),
    )


def test_a_wiped_node_becomes_a_member_again() -> None:
    """A node that lost its disk copies the log and is added to the set in place of its former store."""

    def is_readmitted(state: State) -> bool:
        return state.losses == 1 and state.record.members == ALL_NODES and len(state.decided) > 0

    trace = _reach(SCOPES["loss"], is_readmitted).trace
    assert any(state.record.members >> LOST & 1 for _, state in trace)


def test_a_leader_commits_while_the_answer_to_its_swap_is_lost() -> None:
    """A leader whose swap took effect without an answer goes on, and commits with both sets."""

    def commits(state: State) -> bool:
        return any(
            node.role == LEADER and node.proposed and state.record.members == node.proposed and node.committed
            for node in state.nodes
        )

    _reach(CALM, commits)


def test_an_operator_may_give_up_messages() -> None:
    """With all rules, a node that would lose committed records stops as damaged."""
    result = explore(Model(SCOPES["operator"], Rules()), LIMIT)
    assert (result.found, result.is_complete) == ("", True)
