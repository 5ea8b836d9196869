"""The README's examples run as they stand, and its two commands are those that the check runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.daemon import running

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
NAMESRV = "127.0.0.1:9876"
EXAMPLE_LIMIT_S = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.daemon
def test_the_example_sends_and_receives(tmp_path: Path) -> None:
    """Pasted into a file and pointed at a running broker, the example does what it says."""
    example, _ = blocks("python")
    assert NAMESRV in example
    with running(directory=tmp_path) as daemon:
        script = tmp_path / "example.py"
        script.write_text(example.replace(NAMESRV, daemon.namesrv))
        command = [sys.executable, "-X", "dev", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=EXAMPLE_LIMIT_S, check=False)
        assert daemon.stop() == 0, daemon.output
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sent [0-9A-F]{32}\nreceived \['order-1'\] one coffee\n", done.stdout)


def test_the_test_of_another_project_passes(tmp_path: Path) -> None:
    """The second example, in a project of its own, gets its broker from the installed plugin."""
    _, example = blocks("python")
    (tmp_path / "test_orders.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=EXAMPLE_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_examples_are_short() -> None:
    """Twenty lines or so; more is not an example but a tutorial."""
    assert all(len(example.splitlines()) <= 24 for example in blocks("python"))


def test_each_command_is_one_line_that_the_check_finds() -> None:
    """One command installs and runs the daemon, one installs and runs the tests; `.ci/run` greps for them."""
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert [command.split("/")[-1] for command in commands] == ["mqbroker", "pytest"]
    assert all(command.startswith("python3 -m venv ") for command in commands)
