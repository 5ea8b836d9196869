"""Workloads and their shares."""

import pytest

from skylarkmq.clients.mqbench.commands import mqbench
from skylarkmq.clients.mqbench.workloads import COMMANDS, PRESETS, Workload


def test_presets_have_the_names_of_openmessaging() -> None:
    """The parameters match the name."""
    assert PRESETS["1-topic-16-queues-1kb"].workload == Workload(queues=16, rate=50_000.0)
    assert PRESETS["max-rate-1-topic-1-queue-1kb"].workload == Workload(queues=1)
    assert PRESETS["100-topics-1kb"].workload.topics == 100
    assert PRESETS["backlog-1-topic-16-queues-1kb"].command == "backlog"
    assert {preset.command for preset in PRESETS.values()} == set(COMMANDS)
    assert {command.name for command in mqbench.registered_commands} >= set(COMMANDS)


def test_topic_names_have_the_same_length() -> None:
    """So all frames have the same length."""
    assert Workload(topics=1).topic_names() == ["mqbench-0"]
    assert Workload(topics=11, topic="x").topic_names()[::5] == ["x-00", "x-05", "x-10"]


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_the_shares_of_processes_add_up(processes: int) -> None:
    """Connections and rate are divided without a remainder."""
    workload = Workload(connections=4, rate=1000.0, processes=processes)
    shares = [workload.share(part, processes) for part in range(processes)]
    assert sum(share.connections for share in shares) == 4
    assert sum(share.rate or 0 for share in shares) == pytest.approx(1000.0)
    assert min(share.connections for share in shares) > 0
