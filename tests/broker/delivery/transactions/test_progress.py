"""Saved offsets: never ahead of decided half messages, nor of the disk."""

import pytest

from skylarkmq.broker.delivery.transactions.progress import GROUP, Offsets, Progress
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.protocol.codes import SystemTopic

HALF, OP = SystemTopic.TRANSACTION_HALF, SystemTopic.TRANSACTION_OP


@pytest.fixture
def table() -> ConsumerOffsetTable:
    return ConsumerOffsetTable(OffsetsConfig(), lambda: 0)


def saved(table: ConsumerOffsetTable) -> tuple[int | None, int | None]:
    return table.committed(GROUP, HALF, 0), table.committed(GROUP, OP, 0)


def test_offsets_begin_within_the_queues(table: ConsumerOffsetTable) -> None:
    """Without saved offsets, at the first existing message."""
    assert Progress(table).begin(Offsets(3, 4), Offsets(9, 9)) == (3, 4)
    table.commit_own(HALF, 0, 20)
    table.commit_own(OP, 0, 5)
    assert Progress(table).begin(Offsets(3, 4), Offsets(9, 9)) == (9, 5)
    assert saved(table) == (20, 5)


def test_op_messages_are_not_needed_after_older_half_messages_are_decided(table: ConsumerOffsetTable) -> None:
    """Once none of the half messages before the mark is open."""
    progress = Progress(table)
    for half, op in ((10, 4), (20, 15), (20, 15), (30, 16)):
        progress.mark(Offsets(half, op))
    assert progress.statistics().marks == 3
    for begin, op in ((9, 0), (10, 4), (19, 4), (20, 15), (30, 16)):
        progress.step(begin, 100, 100)
        assert saved(table) == (begin, op)
    assert repr(progress) == "<Progress half=30 op=16 marks=0>"


def test_offsets_are_not_saved_ahead_of_the_disk(table: ConsumerOffsetTable) -> None:
    """The log must be flushed up to its end at the time when the offsets were read; one pair at a time."""
    progress = Progress(table)
    progress.step(1, 100, 50)
    progress.step(2, 200, 99)
    assert saved(table) == (None, None)
    progress.step(3, 300, 100)
    assert saved(table) == (1, 0)
    progress.step(4, 400, 299)
    assert saved(table) == (1, 0)
    progress.step(4, 400, 400)
    assert saved(table) == (4, 0)
