"""Histories of a real broker and real clients with kills, stops and pauses fulfill every guarantee."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.crash

RUNS: Final = int(os.environ.get("SKYLARK_HISTORIES", "10"))
SECONDS: Final = 20
LIMIT_S: Final = 300
ACKNOWLEDGED: Final = re.compile(r"all well: .* (\d+) acknowledged, (\d+) delivered")


@pytest.mark.timeout(60 + RUNS * LIMIT_S)
def test_guarantees_hold_with_kills_stops_and_pauses(tmp_path: Path) -> None:
    """Runs with different seeds. SKYLARK_HISTORIES: the number. A failing run prints its findings; its seed repeats it:
    `python -m tests.crash.histories --runs 1 --seed N`."""
    command = [sys.executable, "-m", "tests.crash.histories", "--runs", str(RUNS), "--seconds", str(SECONDS)]
    done = subprocess.run([*command, "--keep", str(tmp_path)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{done.stderr}\n{done.stdout}", pytrace=False)
    verdicts = ACKNOWLEDGED.findall(done.stdout)
    assert len(verdicts) == RUNS, done.stdout
    assert all(int(acknowledged) and int(delivered) for acknowledged, delivered in verdicts), done.stdout


def test_a_history_is_checked_from_its_files(tmp_path: Path) -> None:
    """Without a run: a message without a handler call is found and reported."""
    begun = '{"what":"group","at":1,"group":"workers","topics":{"Plain":{}}}'
    sent = '{"what":"sending","at":2,"id":"p-1","topic":"Plain","crc":1}'
    stored = '{"what":"stored","at":3,"topic":"Plain","queue_id":0,"offset":0,"id":"p-1","crc":1}'
    ended = '{"what":"ended","at":4,"drained":true}'
    (tmp_path / "run.jsonl").write_text(f"{begun}\n{sent}\n{stored}\n{ended}\n")
    command = [sys.executable, "-m", "tests.crash.histories", "--check", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "handled: workers has not handled p-1 of Plain/0 #0")
