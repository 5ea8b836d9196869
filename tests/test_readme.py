"""The README's examples run unchanged, and `.ci/run` finds its two commands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.daemon import running
from tests.harness.limits import PROCESS_LIMIT_S

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
NAMESRV = "127.0.0.1:9876"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.daemon
def test_the_example_sends_and_receives(tmp_path: Path) -> None:
    """The first example, with the address of a running broker, prints the message that it sent and received."""
    example, _ = blocks("python")
    assert NAMESRV in example
    with running(directory=tmp_path) as daemon:
        script = tmp_path / "example.py"
        script.write_text(example.replace(NAMESRV, daemon.namesrv))
        command = [sys.executable, "-X", "dev", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
        assert daemon.stop() == 0, daemon.output
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sent [0-9A-F]{32}\nreceived \['order-1'\] one coffee\n", done.stdout)


@pytest.mark.packaging
def test_the_pytest_example_passes_in_another_project(tmp_path: Path) -> None:
    """The second example, in a separate project, gets its broker from the installed plugin."""
    _, example = blocks("python")
    (tmp_path / "test_orders.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_examples_are_short() -> None:
    """An example has at most 24 lines."""
    assert all(len(example.splitlines()) <= 24 for example in blocks("python"))


def test_each_command_is_one_line() -> None:
    """One command installs and runs the daemon, the other the tests. `.ci/run` searches for these lines."""
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert [command.split("/")[-1] for command in commands] == ["mqbroker", "pytest"]
    assert all(command.startswith("python3 -m venv ") for command in commands)
