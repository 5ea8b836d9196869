"""Damage in any file of a store is detected or harmless: never a wrong message, at most a refused start."""

import os
from typing import Final

import pytest

from tests.crash.damage import outcome_of
from tests.crash.trial import outcomes

pytestmark = pytest.mark.crash

DAMAGE: Final = int(os.environ.get("SKYLARK_DAMAGE", "1500"))


@pytest.mark.timeout(3600)
def test_damaged_files_are_detected_or_harmless() -> None:
    """Flipped bits, and zeroed, misdirected and truncated blocks in all files. SKYLARK_DAMAGE: the number of runs."""
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
    failed = [f"--seed {seed}: {why}" for seed, why, _ in outcomes(range(DAMAGE), jobs, outcome_of) if why]
    assert not failed, "python -m tests.crash.damage\n" + "\n".join(failed)
