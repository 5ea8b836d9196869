"""The end of a run with --available-now on PySpark before 4.2: when a query has read everything, or is stalled."""

from typing import Any

import pytest

from skylarkmq.clients.spark.pipeline.target import Stalled, Target
from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.protocol.bodies.message_queue import MessageQueue

A, B, EMPTY = (MessageQueue("T", "a", number) for number in range(3))
TARGET = {A: 5, B: 3, EMPTY: 0}


def progress(batch: int, a: int, b: int) -> dict[str, Any]:
    return {"batchId": batch, "sources": [{"endOffset": Offset({A: a, B: b}).to_dict()}]}


def test_a_query_is_complete_once_it_waits_at_the_target() -> None:
    """Its last batch reached the target, and Spark has found nothing more; queues without messages do not count."""
    target = Target(TARGET, 60)
    assert not target.is_complete("q", None, has_data=False)
    assert not target.is_complete("q", progress(0, 5, 2), has_data=False)
    assert not target.is_complete("q", progress(1, 5, 3), has_data=True)
    assert target.is_complete("q", progress(1, 5, 3), has_data=False)


def test_messages_that_arrive_meanwhile_do_not_keep_a_query_running() -> None:
    """The batch after the one that reached the target completes it; each query has its own."""
    target = Target(TARGET, 60)
    assert not target.is_complete("q", progress(7, 6, 3), has_data=True)
    assert target.is_complete("q", progress(8, 7, 3), has_data=True)
    assert not target.is_complete("other", progress(8, 7, 3), has_data=True)


def test_a_query_that_does_not_advance_is_stalled() -> None:
    """The error has the queues that lack messages. A batch that is running is not stalled, however long it takes."""
    now = 0.0
    target = Target(TARGET, 60, lambda: now)
    assert not target.is_complete("q", progress(0, 5, 0), has_data=False)
    now = 61
    assert not target.is_complete("q", progress(0, 5, 0), has_data=True)
    assert not target.is_complete("q", progress(1, 5, 1), has_data=False)
    now = 130
    with pytest.raises(Stalled, match="q does not advance in T@a:1: check"):
        target.is_complete("q", progress(1, 5, 1), has_data=False)


def test_a_query_without_its_checkpoint_may_have_nothing_to_read() -> None:
    """It is complete where it begins, without any batch; otherwise at the target, like others."""
    target = Target(TARGET, 60)
    target.begin_at({"q": {A: 5, B: 3}, "late": {A: 5, B: 2}})
    assert target.is_complete("q", None, has_data=False)
    assert not target.is_complete("late", None, has_data=False)
    assert not target.is_complete("late", progress(0, 5, 3), has_data=True)
    assert target.is_complete("late", progress(0, 5, 3), has_data=False)
    assert not target.is_complete("other", None, has_data=False)
