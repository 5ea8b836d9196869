"""Bounds of new messages, on brokers that write queue units late."""

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from skylarkmq.clients.mqbench import clusters
from skylarkmq.clients.mqbench.clusters import Bounds, Broker, added_since
from skylarkmq.clients.mqbench.workloads import Workload

BEFORE = [Bounds(Broker("broker-a", "h:1"), "T", queue_id, first=3, end=10) for queue_id in range(2)]


def fake_ends(monkeypatch: pytest.MonkeyPatch, ends: Iterator[tuple[int, int]]) -> list[Sequence[Broker]]:
    """Replace the ends of queues, one per read; return the brokers of each read."""
    looks: list[Sequence[Broker]] = []

    def bounds_of(brokers: Sequence[Broker], _: Workload) -> list[Bounds]:
        looks.append(brokers)
        return [msgspec.structs.replace(queue, end=end) for queue, end in zip(BEFORE, next(ends), strict=True)]

    monkeypatch.setattr(clusters, "bounds_of", bounds_of)
    monkeypatch.setattr(clusters, "LAG_LOOKS_S", 0)
    return looks


def test_late_queue_units_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ writes them after its responses."""
    looks = fake_ends(monkeypatch, iter([(10, 10), (15, 10), (15, 15), (16, 17)]))
    added = added_since(BEFORE, Workload(topic="T", queues=2), 10)
    assert [(queue.first, queue.end) for queue in added] == [(10, 15), (10, 15)]
    assert looks == [[Broker("broker-a", "h:1")]] * 3


def test_missing_messages_are_not_waited_for_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the messages that exist."""
    monkeypatch.setattr(clusters, "LAG_S", 0.0)
    fake_ends(monkeypatch, iter([(12, 10)]))
    added = added_since(BEFORE, Workload(topic="T", queues=2), 10)
    assert [(queue.first, queue.end) for queue in added] == [(10, 12), (10, 10)]
