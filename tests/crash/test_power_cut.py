"""After a power cut, at any call and with any part of what was not synced: what is owed is there."""

import os

import pytest

from tests.crash.power_cut import TRIAL

pytestmark = pytest.mark.crash

CUTS = int(os.environ.get("SKYLARK_CUTS", "3000"))

# What these seeds found when they were first run; the workload has grown since, so they are seeds like any other now.
FOUND = {
    4: "units of a killed process were never synced, and the clean stop after it vouched for them",
    5: "records of a killed process were called durable unsynced, and vanished after they were seen",
    46: "a queue without scanned records kept units of records behind the log's end",
    161: "two segments made ahead were removed first one first: a gap stopped the start",
    192: "a queue's first file had no size yet, its second one had: the start was stopped",
    355: "a torn queue offset of 0 took the place of the queue's first message",
    361: "the store's directory was made by a killed process and never synced",
    1053: "a torn unit counted as that of a later record",
    225: "a deleted queue's first file went first, and the rest of it became a queue that begins later",
    17930: "a torn blank was stepped over and left torn",
    22974: "a unit of zeros counted as that of the record at offset 0",
    30090: "a unit of zeros led to a deleted topic's record, and a topic made again ended the log",
    45977: "a record torn to store time 0 gives an index file no beginning: the check expected seconds all the same",
    730: "an index file whose head was lost counted as covered by the checkpoint",
    7120: "files that a killed recovery removed came back behind the next clean stop",
    3489: "a state file renamed by a killed process was served, then lost",
    3993: "a torn topic with a zero byte came out of load as ValueError",
    6867: "removed queue files came back with their units",
    14565: "a torn queue offset made a queue begin in the middle",
    331: "a queue file went before its log segment's unlink was safe: the segment came back, and the start was stopped",
    194: "an index file went before its log segment's unlink was safe, and the segment came back",
    68625: "units of zeros counted as those of records that the log has given up",
    78709: "a torn unit that points before its forerunner's record counted as one that the log has given up",
    210995: "a file of a deleted queue came back, and the units of the queue made again went before its first segment",
    221849: "a segment made by a start that was killed was written to, and its name never synced",
    79101: "a half message's torn head called it its queue's first, and the first message lost its unit",
    4186: "all segments of a queue went but one without a unit on disk: the queue was numbered anew",
    101552: "a torn unit that points before the log counted against the queue's first scanned record",
    503537: "of an index file's torn head a part of the time was older: the checkpoint seemed to vouch for it",
    589974: "a killed process had begun to delete a topic: the check took its queue's absence for an undeleted topic",
    618201: "an index that a killed recovery had made was never synced, and a clean start did not make it again",
    465: "a segment went before its queue's units were synced: the queue was numbered anew",
}


@pytest.mark.timeout(3600)
def test_power_cuts() -> None:
    """Random lives, random cuts, nested in recoveries: no seed fails. SKYLARK_CUTS says how many."""
    assert not (failed := TRIAL.failed(range(CUTS))), "\n".join(failed)


@pytest.mark.parametrize("seed", FOUND)
def test_found_before(seed: int) -> None:
    """Seeds that once failed hold."""
    TRIAL.run(seed)
