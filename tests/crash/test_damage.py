"""Damage in any file of a store is seen, or does no harm: never a wrong message, never anything but a refusal."""

import os
from typing import Final

import pytest

from tests.crash.damage import failure_of
from tests.crash.trial import failures

pytestmark = pytest.mark.crash

DAMAGE: Final = int(os.environ.get("SKYLARK_DAMAGE", "1500"))


@pytest.mark.timeout(3600)
def test_damage() -> None:
    """Flipped bits, zeroed, misdirected and cut-off blocks in files of all kinds; SKYLARK_DAMAGE says how many."""
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
    failed = [f"--seed {seed}: {why}" for seed, why in failures(range(DAMAGE), jobs, failure_of) if why]
    assert not failed, "python -m tests.crash.damage\n" + "\n".join(failed)
