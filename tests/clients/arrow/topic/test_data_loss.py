"""Losses: an error with the range, or one warning for each run of offsets."""

import pytest

from skylarkmq.clients.arrow.topic.data_loss import DataLoss, Loss, LossRule
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def test_a_loss_fails_with_its_range() -> None:
    """The error names the option that continues without the messages."""
    with pytest.raises(DataLoss, match=r"T@b:0 from offset 3 to 9 \(excluded\): gone.*failOnDataLoss to false"):
        LossRule(True).record(Loss(QUEUE, 3, 9, "gone"))


def test_adjacent_losses_are_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """Independent of the order in which they were recorded; each loss is logged once."""
    rule = LossRule(False)
    for begin in (6, 0, 3, 20):
        rule.record(Loss(QUEUE, begin, begin + 3, "gone"))
    assert rule.log_losses() == [Loss(QUEUE, 0, 9, "gone"), Loss(QUEUE, 20, 23, "gone")]
    assert rule.log_losses() == []
    assert caplog.text.count("messages lost") == 2


def test_a_loss_with_an_unknown_end_is_described() -> None:
    """The number of lost messages of a deleted queue is unknown."""
    assert str(Loss(QUEUE, 3, None, "why")) == "T@b:0 from offset 3 on: why"
