"""Settings of a session that writes Delta tables."""

from types import SimpleNamespace
from typing import Any

import pytest

from skylarkmq.clients.spark.tables.delta import REPLAY_TASKS, limit_replay


class Settings(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


@pytest.mark.parametrize(("cores", "settings", "tasks"), [(2, {}, "2"), (400, {}, "50"), (2, {REPLAY_TASKS: "7"}, "7")])
def test_a_log_is_replayed_with_a_task_for_each_core(cores: int, settings: dict[str, str], tasks: str) -> None:
    """At most Delta's default of 50; a number that is set stays."""
    session: Any = SimpleNamespace(conf=Settings(settings), sparkContext=SimpleNamespace(defaultParallelism=cores))
    limit_replay(session)
    assert session.conf == {REPLAY_TASKS: tasks}
