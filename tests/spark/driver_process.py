"""The pipeline as a driver process on a cluster of two executors, and `kill -9` of its parts.

    with PipelineProcess(python, directory, arguments) as pipeline:
        pipeline.wait_for_batch()
        pipeline.kill_executor(chance)
        pipeline.kill_driver()

The executors are processes of their own (`local-cluster`). Spark replaces one that was killed. Executors of a killed
driver end by themselves once they notice it; those that have not are killed at the end.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, Self

from tests.harness.ports import LOOPBACK
from tests.spark.session import JAVA_OPTIONS, PYTHON_PATH, ROOT

MASTER: Final = "local-cluster[2,1,700]"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "700m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": LOOPBACK,
    "spark.task.maxFailures": "20",  # of a task, over all of its attempts: executors die often here
}
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
JVM: Final = "org.apache.spark.deploy.SparkSubmit"
LIMIT_S: Final = 3600.0
IDLE_S: Final = 60.0
POLL_S: Final = 0.05


class PipelineProcess:
    """A running `mqspark-pipeline`. Its output is appended to `output.txt` in the directory."""

    def __init__(self, python: Path, directory: Path, arguments: Sequence[str]) -> None:
        self._output = directory / "pipeline.txt"
        self._from = self._output.stat().st_size if self._output.exists() else 0
        command = [str(python), "-m", "skylarkmq.clients.spark.pipeline.command", "--master", MASTER, *arguments]
        for name, value in SETTINGS.items():
            command += ["--conf", f"{name}={value}"]
        environment = os.environ | {
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": os.pathsep.join([*PYTHON_PATH, str(ROOT / "src")]),
            "SPARK_HOME": str(spark_home(python, directory)),
            "SPARK_LOCAL_DIRS": str(directory),
        }
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=directory, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill everything that is left of the process group."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    @property
    def output(self) -> str:
        """Return the output of this run."""
        with self._output.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether the driver runs."""
        return self._process.poll() is None

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end; return the exit code."""
        return self._process.wait(limit_s)

    def wait_for_batch(self) -> bool:
        """Wait until the run has written a batch, or has nothing to write; return False if the driver has ended."""
        deadline = time.monotonic() + IDLE_S
        while self.is_running and time.monotonic() < deadline:
            if any(" batch=" in line for line in self.output.splitlines()):
                return True
            time.sleep(POLL_S)
        return self.is_running

    def kill_driver(self) -> bool:
        """Kill the driver's JVM and its Python process; return False if it has ended already."""
        victims = [pid for pid in descendants(self._process.pid) if JVM in command_of(pid) and is_driver(pid)]
        is_killed = self.is_running
        for pid in (*victims, self._process.pid):
            kill(pid)
        self._process.wait()
        return is_killed

    def kill_executor(self, chance: Random) -> bool:
        """Kill one executor; return False if there is none."""
        executors = [pid for pid in descendants(self._process.pid) if EXECUTOR in command_of(pid)]
        return kill(chance.choice(executors)) if executors else False


def descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended in the meantime
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def is_driver(pid: int) -> bool:
    """Return whether a process is a JVM and not the script that starts it."""
    return command_of(pid).split(" ", 1)[0].endswith("java")


def kill(pid: int) -> bool:
    """Kill a process; return False if it has ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def spark_home(python: Path, directory: Path) -> Path:
    """Return a copy of that interpreter's PySpark by links, with the executors' files below `directory`."""
    home = directory / "spark"
    if not home.exists():
        home.mkdir()
        found = "import pyspark; print(pyspark.__path__[0])"
        package = subprocess.run([python, "-c", found], check=True, capture_output=True, text=True).stdout.strip()
        for entry in Path(package).iterdir():
            (home / entry.name).symlink_to(entry)
    return home
