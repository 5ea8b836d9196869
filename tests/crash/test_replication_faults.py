"""Each fault of a follower for two seconds: nothing acknowledged is lost, or has too few synced copies.

The groups run at the same time; most of the test waits. `python -m tests.crash.replication_faults` runs longer faults,
and compares the pauses of acknowledgements with their limit.
"""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.crash.replication_faults import FAULTS, STRICT, SURVIVED, Plan, run
from tests.harness.observed_disk import build_library, can_observe

pytestmark = pytest.mark.crash

SECONDS: Final = 2.0
RESTART_S: Final = 0.2
PAUSE_S: Final = 0.1
GROUPS: Final = (
    (("disk-full", "killed", "log-sync-failing", "paused", "cut-to-follower", "cut-to-leader"), SURVIVED),
    (("sync-slow", "sync-failing"), SURVIVED),
    (("down",), STRICT),
)


@pytest.mark.skipif(not can_observe(), reason="no gcc here")
async def test_nothing_acknowledged_is_lost_while_a_follower_fails(tmp_path: Path) -> None:
    """Every message that a producer of the SDK got acknowledged had enough synced copies then, and has them after."""
    assert {fault for faults, _ in GROUPS for fault in faults} == set(FAULTS)
    library = await asyncio.to_thread(build_library, tmp_path)
    plans = [Plan(faults, minimum, SECONDS, RESTART_S, PAUSE_S) for faults, minimum in GROUPS]
    outcomes = await asyncio.gather(*(run(plan, tmp_path / str(number), library) for number, plan in enumerate(plans)))
    for plan, outcome in zip(plans, outcomes, strict=True):
        assert outcome.findings == [], "\n".join(map(str, outcome.figures))
        assert outcome.skipped or [one.fault for one in outcome.figures] == list(plan.faults)
    if skipped := [outcome.skipped for outcome in outcomes if outcome.skipped]:
        pytest.skip(f"all other groups are well; {skipped[0]}")
