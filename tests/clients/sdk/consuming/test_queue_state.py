"""The states of one assigned queue: every event in every state."""

import pytest

from skylarkmq.clients.sdk.consuming.queue_state import TRANSITIONS, Assignment, InvalidChange, QueueEvent, QueueState
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "a", 0)

TABLE = {
    #                  READ       PAUSE              RESUME      LEAVE      RELEASE
    "ASSIGNED":        ("READING", "ASSIGNED_PAUSED", "ASSIGNED", "LEAVING", None),
    "ASSIGNED_PAUSED": ("PAUSED",  "ASSIGNED_PAUSED", "ASSIGNED", "LEAVING", None),
    "READING":         ("READING", "PAUSED",          "READING",  "LEAVING", None),
    "PAUSED":          ("PAUSED",  "PAUSED",          "READING",  "LEAVING", None),
    "LEAVING":         (None,      None,              None,       None,      "RELEASED"),
    "RELEASED":        (None,      None,              None,       None,      None),
}  # fmt: skip
CASES = [
    (QueueState[state], event, None if following is None else QueueState[following])
    for state, row in TABLE.items()
    for event, following in zip(QueueEvent, row, strict=True)
]


@pytest.mark.parametrize(("state", "event", "following"), CASES)
def test_every_event_in_every_state(state: QueueState, event: QueueEvent, following: QueueState | None) -> None:
    """It leads to the state of the table, or is refused and changes nothing."""
    calls = []
    assignment = Assignment(QUEUE, state)
    assignment.on_change = lambda: calls.append(assignment.state)
    if following is None:
        with pytest.raises(InvalidChange, match=state.value):
            assignment.change(event)
    else:
        assignment.change(event)
    assert assignment.state is (following or state)
    assert calls == ([following] if following else [])


def test_the_table_has_all_states() -> None:
    """In the module and here."""
    assert set(TRANSITIONS) == set(QueueState) == {QueueState[name] for name in TABLE}


def test_only_a_queue_that_is_read_is_pulled() -> None:
    """A queue that leaves is not owned any more."""
    assert [state for state in QueueState if Assignment(QUEUE, state).may_pull] == [QueueState.READING]
    assert [state for state in QueueState if not state.is_owned] == [QueueState.LEAVING, QueueState.RELEASED]
