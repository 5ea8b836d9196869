"""The mutants of the replication model: in each, one rule is taken out, and the exploration must find what breaks.

`rule` is the number of the rule in tests/ha/model.py, `switch` the field of `Rules` that is off. The scope is small, so
that the shortest trace is found in seconds; the model with all rules has no finding in the same scope.
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.ha.rules import Rules, Scope

CALM: Final = Scope(epochs=2, writes=1, crashes=0, losses=0)
"""Two terms, one message, no fault but late frames and lost answers."""
SILENT: Final = replace(CALM, writes=0)
"""The same without a message: the epoch records are what is committed or lost."""
POWER_CUT: Final = replace(CALM, crashes=1)
SCOPES: Final = {
    "full": Scope(),
    "full-min-1": Scope(minimum=1),
    "small": CALM,
    "small-min-1": replace(CALM, minimum=1),
    "power-cut": POWER_CUT,
    "three-terms": replace(CALM, epochs=3, writes=0),
    "loss": replace(CALM, losses=1),
    "operator": replace(CALM, minimum=1, writes=0, operator_elections=1),
}
"""The scopes of the command, by name."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A model without one rule, and what it does wrong."""

    rule: int
    switch: str
    about: str
    scope: Scope = CALM

    @property
    def rules(self) -> Rules:
        return replace(Rules(), **{self.switch: False})


MUTANTS: Final[dict[str, Mutant]] = {
    "promise-forgotten": Mutant(
        1,
        "promises_are_persisted",
        "a restarted node follows an older leader than it has promised",
        replace(POWER_CUT, writes=0, set_changes=False),
    ),
    "old-data-accepted": Mutant(
        1, "old_data_is_refused", "a follower appends frames of the leader before", replace(CALM, writes=3)
    ),
    "old-acks-counted": Mutant(
        1,
        "old_acks_are_refused",
        "a leader counts acknowledgements of its former term",
        replace(SILENT, epochs=3, set_changes=False),
    ),
    "blind-swap": Mutant(2, "swaps_compare", "the record is written without a comparison"),
    "outsider-campaigns": Mutant(2, "members_campaign", "a node outside the set begins a term"),
    "term-resumed": Mutant(2, "terms_end_with_restart", "a leader goes on in its term after a power cut", POWER_CUT),
    "lost-answer-is-no": Mutant(2, "lost_answers_are_read_again", "a swap without an answer counts as refused"),
    "unchanged-is-no": Mutant(
        2,
        "unchanged_concludes_nothing",
        "an unchanged record counts as refusal, though the request still arrives",
    ),
    "removal-counts-early": Mutant(3, "removals_wait", "a removed member does not count from the request on"),
    "addition-counts-late": Mutant(
        3,
        "additions_count_first",
        "an added member does not count until the answer (RocketMQ #5663)",
    ),
    "added-far-behind": Mutant(
        3,
        "additions_have_caught_up",
        "a member is added without what its leader has committed",
        replace(CALM, epochs=1),
    ),
    "added-before-epoch-record": Mutant(
        3, "additions_have_the_epoch_record", "a member is added without what earlier leaders have committed", SILENT
    ),
    "silent-left-out": Mutant(
        3, "silent_members_count", "members without connection are left out of the minimum (RocketMQ #6662)"
    ),
    "own-sync-ignored": Mutant(3, "own_sync_counts", "the leader commits what it has not synced itself", POWER_CUT),
    "visible-early": Mutant(4, "visible_is_committed", "a leader shows what it has synced itself"),
    "below-min": Mutant(5, "min_is_kept", "the recorded set shrinks below the minimum"),
    "no-epoch-record": Mutant(
        6, "terms_begin_with_a_record", "epochs are not in the log (RocketMQ #9942)", replace(CALM, writes=2)
    ),
    "truncation-unsynced": Mutant(
        7,
        "truncation_is_synced_first",
        "new bytes follow unsynced zeros (RocketMQ #10666)",
        replace(POWER_CUT, writes=2, set_changes=False),
    ),
    "truncated-below-mark": Mutant(
        7,
        "truncation_respects_the_mark",
        "a node drops committed records because an operator has elected a node without them",
        SCOPES["operator"],
    ),
    "acks-written": Mutant(8, "acks_are_synced", "a follower acknowledges what a power cut destroys", POWER_CUT),
    "store-id-kept": Mutant(
        8, "losses_change_the_store_id", "a node that lost synced bytes is still a member", replace(CALM, losses=1)
    ),
    "queue-offsets-of-dispatched": Mutant(
        9, "queue_offsets_use_the_tail", "a leader ignores its tail (RocketMQ #7689)", replace(CALM, writes=2)
    ),
}
