"""Metrics of the process, compared with a fake /proc and with this process."""

import os
import time
from pathlib import Path

from skylarkmq.broker.ops.collectors.process import ProcessCollector
from skylarkmq.broker.ops.steps import Value


def values(collector: ProcessCollector) -> dict[str, float]:
    found = {}
    for step in collector():
        if isinstance(step, Value):
            assert isinstance(step.value, int | float)
            found[step.name] = step.value
    return found


def test_metrics_of_this_process() -> None:
    """Memory, time and descriptors."""
    collector = ProcessCollector()
    found = values(collector)
    status = Path("/proc/self/status").read_text()
    assert f"RssAnon:\t{found['skylark_memory_anonymous_bytes'] // 1024:8.0f} kB" in status
    assert found["skylark_memory_anonymous_bytes"] < found["process_resident_memory_bytes"]
    assert found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 0 < found["process_cpu_seconds_total"] <= time.process_time() + 1
    assert time.time() - 3_600 < found["process_start_time_seconds"] < time.time()
    assert abs(found["process_open_fds"] - len(os.listdir("/proc/self/fd"))) <= 2
    assert found["process_open_fds"] < found["process_max_fds"]


def test_many_descriptors_are_counted_in_steps(tmp_path: Path) -> None:
    """If the kernel does not report their number, they are counted, with other work in between."""
    own = tmp_path / "self"
    (own / "fd").mkdir(parents=True)
    (tmp_path / "uptime").write_text("100.0 50.0\n")
    (own / "stat").write_text("7 (a (strange) name) S " + " ".join(str(number) for number in range(4, 53)))
    (own / "status").write_text("Name:\tx\n")
    for number in range(600):
        (own / "fd" / str(number)).touch()
    collector = ProcessCollector(own, entries=lambda _directory: 0)
    steps = list(collector())
    assert steps[-1] == Value("process_open_fds", (), 600)
    assert steps.count(None) == 2
    assert "skylark_memory_anonymous_bytes" not in values(collector)
    assert values(collector)["process_cpu_seconds_total"] == (14 + 15) / os.sysconf("SC_CLK_TCK")
