"""After a power cut at any system call, with any part of the unsynced data lost, the store has all owed messages."""

import os

import pytest

from tests.crash.power_cut import TRIAL

pytestmark = pytest.mark.crash

CUTS = int(os.environ.get("SKYLARK_CUTS", "3000"))

# The defects that these seeds found when they were first run; the workload has grown since.
FOUND = {
    4: "units of a killed process were never synced, but the next clean stop recorded them as flushed",
    5: "records of a killed process were reported as durable without a sync, and lost after a consumer read them",
    46: "a queue without scanned records kept units of records after the log's end",
    161: "of two preallocated segments the first was removed first: a gap stopped the start",
    192: "a queue's first file had no size yet, but its second one had: the start was stopped",
    355: "a torn queue offset of 0 replaced the queue's first message",
    361: "the store's directory was created by a killed process and never synced",
    1053: "a torn unit counted as that of a later record",
    225: "a deleted queue's first file was removed first, and the rest became a queue that begins later",
    17930: "a torn blank was skipped and left torn",
    22974: "a unit of zeros counted as that of the record at offset 0",
    30090: "a unit of zeros led to a deleted topic's record, and a topic created again ended the log",
    45977: "a record torn to store time 0 gives an index file no start time, which the check did not allow",
    730: "an index file with a lost header counted as covered by the checkpoint",
    7120: "files that a killed recovery removed reappeared after the next clean stop",
    3489: "a state file renamed by a killed process was served, then lost",
    3993: "a torn topic with a zero byte made load raise ValueError",
    6867: "removed queue files reappeared with their units",
    14565: "a torn queue offset made a queue begin in the middle",
    331: "a queue file was removed before its log segment's unlink was durable: the start was stopped",
    194: "an index file was removed before its log segment's unlink was durable",
    68625: "units of zeros counted as those of records that are removed from the log",
    78709: "a torn unit that points before its predecessor's record counted as one of a removed record",
    210995: "a file of a deleted queue reappeared, and the units of the new queue were placed before its first segment",
    221849: "a segment created by a killed start was written to, but its name was never synced",
    79101: "a half message's torn head had queue offset 0, and the first message lost its unit",
    4186: "all segments of a queue were removed except one without a unit on disk: its offsets began at 0 again",
    101552: "a torn unit that points before the log counted against the queue's first scanned record",
    503537: "a torn time in an index file's header was older, so the checkpoint seemed to cover the file",
    589974: "a killed process had begun to delete a topic: the check did not expect its queue to be missing",
    618201: "an index built by a killed recovery was never synced, and a clean start did not rebuild it",
    465: "a segment was removed before its queue's units were synced: the queue's offsets began at 0 again",
}


@pytest.mark.timeout(3600)
def test_acknowledged_messages_survive_power_cuts() -> None:
    """No seed fails, also with power cuts during recovery. SKYLARK_CUTS: the number of seeds."""
    assert not (failed := TRIAL.failed(range(CUTS))), "\n".join(failed)


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_failed_once(seed: int) -> None:
    """Seeds that failed once pass."""
    TRIAL.run(seed)
