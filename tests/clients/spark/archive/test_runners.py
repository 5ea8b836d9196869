"""Worker processes end with the job, however it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.crash

JOB = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from skylarkmq.clients.spark.archive.runners import _end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def test_a_worker_ends_when_the_job_is_killed(tmp_path: Path) -> None:
    """It must not write to an archive that the next job has locked. Its end closes the pipe of its output."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) != process.pid
        process.kill()
        assert process.stdout.read() == ""
