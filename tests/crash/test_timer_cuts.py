"""After a power cut while timers wait: what is owed comes, in time, and what was taken back does not."""

import os

import pytest

from tests.crash.power_cut import failures
from tests.crash.timer_cuts import failure_of, run_seed

pytestmark = pytest.mark.crash

CUTS = int(os.environ.get("SKYLARK_CUTS", "3000")) // 6

# What these seeds found when they were first run.
FOUND = {
    933: "a log file made by a process that was killed was never synced, and vanished in the next cut",
}


@pytest.mark.timeout(3600)
def test_timer_cuts() -> None:
    """Random lives, random cuts: no seed fails. SKYLARK_CUTS says how many, six times as many as here."""
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
    failed = [
        f"python -m tests.crash.timer_cuts --seed {seed}: {why}"
        for seed, why in failures(range(CUTS), jobs, failure_of)
        if why
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", FOUND)
def test_found_before(seed: int) -> None:
    """Seeds that once failed hold."""
    run_seed(seed)
