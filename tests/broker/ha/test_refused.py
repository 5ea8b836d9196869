"""Refusals of replicas: all are counted, and a host causes one line a minute for each reason."""

import pytest

from skylarkmq.broker.ha.refused import REMEMBERED, Refused


def test_a_host_causes_one_line_a_minute_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Other hosts and other reasons have lines of their own; the counts have everything."""
    now_s = 100.0
    refused = Refused(lambda: now_s)
    for host in ("10.0.0.1", "10.0.0.2"):
        for _ in range(3):
            refused.note("frame", host, "reason=a")
    refused.note("silent", "10.0.0.1", "reason=b")
    assert len(caplog.records) == 3
    now_s += 60
    refused.note("frame", "10.0.0.1", "reason=a")
    assert len(caplog.records) == 4
    assert refused.counts == {"frame": 7, "silent": 1}
    assert "host=10.0.0.1 reason=a so_far=7" in caplog.text


def test_the_remembered_lines_are_limited() -> None:
    """Many hosts need no more memory than a few."""
    refused = Refused(lambda: 0.0)
    for host in range(3 * REMEMBERED):
        refused.note("frame", str(host), "")
    assert len(refused._logged) <= REMEMBERED
