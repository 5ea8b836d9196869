"""Losses: an error that names the range, or a warning for each run of offsets."""

import pytest

from skylarkmq.clients.spark.source.data_loss import DataLoss, Loss, LossRule
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def test_a_loss_fails_with_its_range() -> None:
    """And says how to go on without it."""
    with pytest.raises(DataLoss, match=r"T@b:0 from offset 3 to 9 \(excluded\): gone.*failOnDataLoss to false"):
        LossRule(True).note(Loss(QUEUE, 3, 9, "gone"))


def test_neighbours_are_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the order in which they were noted, and once."""
    rule = LossRule(False)
    for begin in (6, 0, 3, 20):
        rule.note(Loss(QUEUE, begin, begin + 3, "gone"))
    assert rule.tell() == [Loss(QUEUE, 0, 9, "gone"), Loss(QUEUE, 20, 23, "gone")]
    assert rule.tell() == []
    assert caplog.text.count("messages lost") == 2


def test_an_unknown_end_is_said_so() -> None:
    """As of a queue that does not exist any more."""
    assert str(Loss(QUEUE, 3, None, "why")) == "T@b:0 from offset 3 on: why"
