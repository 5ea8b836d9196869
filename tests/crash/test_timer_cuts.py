"""After a power cut while timers wait: what is owed comes, in time, and what was taken back does not."""

import os

import pytest

from tests.crash.timer_cuts import TRIAL

pytestmark = pytest.mark.crash

CUTS = int(os.environ.get("SKYLARK_CUTS", "3000")) // 6

# What these seeds found when they were first run.
FOUND = {
    933: "a log file made by a process that was killed was never synced, and vanished in the next cut",
}


@pytest.mark.timeout(3600)
def test_timer_cuts() -> None:
    """Random lives, random cuts: no seed fails. SKYLARK_CUTS says how many, six times as many as here."""
    assert not (failed := TRIAL.failed(range(CUTS))), "\n".join(failed)


@pytest.mark.parametrize("seed", FOUND)
def test_found_before(seed: int) -> None:
    """Seeds that once failed hold."""
    TRIAL.run(seed)
