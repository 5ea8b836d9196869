"""Nodes of the tests do not wait for the times of a node on a network."""

import pytest

from skylarkmq.broker.ha.core import decisions
from skylarkmq.broker.ha.link import runner

TICK_S = 0.01
RETRY_S = 0.05


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the core step every 10 ms instead of 100 ms, and read the record again after 50 ms instead of 500 ms."""
    monkeypatch.setattr(runner, "TICK_S", TICK_S)
    monkeypatch.setattr(decisions, "RETRY_S", RETRY_S)
