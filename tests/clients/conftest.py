"""Tests of the clients do not wait for what a client does a second later."""

import pytest

from skylarkmq.clients.sdk.consuming import group_member

SOON_S = 0.05


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members of a group try again after 50 ms instead of 1 s."""
    monkeypatch.setattr(group_member, "SOON_S", SOON_S)
