"""The switches of the replication model: each rule that can be taken out, and the limits of an exploration.

`Rules()` has every rule in force. A mutant (tests/ha/mutants.py) is `Rules` with one switch set to False. The number
in front of each description is the number of the rule in tests/ha/model.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """One switch for each rule; True means that the rule is in force."""

    promises_are_persisted: bool = True
    """1: the promised epoch is in haState before the node acts on it, so that it survives a restart."""
    old_data_is_refused: bool = True
    """1: a follower refuses DATA frames of epochs below its promise."""
    old_acks_are_refused: bool = True
    """1: a leader counts only acknowledgements of its own epoch."""
    swaps_compare: bool = True
    """2: a swap takes effect only if the record is still the one that its sender has read."""
    members_campaign: bool = True
    """2: only a member of the recorded set begins a term."""
    terms_end_with_restart: bool = True
    """2: a node that restarts never resumes its term; it campaigns for a new one."""
    lost_answers_are_read_again: bool = True
    """2: a leader without an answer to its swap reads the record before it concludes anything."""
    unchanged_concludes_nothing: bool = True
    """2: a record that is unchanged leaves the swap open, because the request may still arrive."""
    removals_wait: bool = True
    """3: a removed member counts until the store of decisions has confirmed the removal."""
    additions_count_first: bool = True
    """3: an added member counts before the swap is requested."""
    additions_have_caught_up: bool = True
    """3: a member is added only when it has acknowledged everything that the leader has committed."""
    additions_have_the_epoch_record: bool = True
    """3: a member is added only when it has acknowledged the epoch record of the term."""
    silent_members_count: bool = True
    """3: a member without connection counts with its last acknowledgement."""
    own_sync_counts: bool = True
    """3: the leader's own synced end is part of the minimum."""
    visible_is_committed: bool = True
    """4: messages are shown and sends acknowledged only below the committed mark."""
    min_is_kept: bool = True
    """5: the recorded set keeps at least `min` members."""
    terms_begin_with_a_record: bool = True
    """6: a term begins with an epoch record in the log."""
    truncation_is_synced_first: bool = True
    """7: a truncation is synced before the first new byte is written."""
    truncation_respects_the_mark: bool = True
    """7: a node whose log would be truncated below its committed mark stops as damaged."""
    acks_are_synced: bool = True
    """8: a follower acknowledges its synced end, not its written end."""
    losses_change_the_store_id: bool = True
    """8: a node that lost synced bytes gets a new storeId, and so leaves the set."""
    queue_offsets_use_the_tail: bool = True
    """9: queue offsets follow the whole log, uncommitted tail included."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of an exploration; numbers are totals of a run."""

    minimum: int = 2  # min: members that the recorded set keeps
    epochs: int = 3  # the highest epoch
    writes: int = 3  # messages
    crashes: int = 2  # power cuts: unsynced bytes are lost
    set_changes: bool = True  # whether leaders request other sets
    losses: int = 1  # disks that lose synced bytes or everything: at most 1
    operator_elections: int = 0  # `mqbroker ha elect NODE --lose-data`
