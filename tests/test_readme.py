"""The README's example runs as it stands, and its two commands are those that the check runs."""

import re
import subprocess
import sys
from pathlib import Path

from tests.harness.daemon import running

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
NAMESRV = "127.0.0.1:9876"
EXAMPLE_LIMIT_S = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_example_sends_and_receives(tmp_path: Path) -> None:
    """Pasted into a file and pointed at a running broker, the example does what it says."""
    (example,) = blocks("python")
    assert NAMESRV in example
    with running(directory=tmp_path) as daemon:
        script = tmp_path / "example.py"
        script.write_text(example.replace(NAMESRV, daemon.namesrv))
        command = [sys.executable, "-X", "dev", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=EXAMPLE_LIMIT_S, check=False)
        assert daemon.stop() == 0, daemon.output
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sent [0-9A-F]{32}\nreceived \['order-1'\] one coffee\n", done.stdout)


def test_the_example_is_short() -> None:
    """Twenty lines or so; more is not an example but a tutorial."""
    (example,) = blocks("python")
    assert len(example.splitlines()) <= 24


def test_each_command_is_one_line_that_the_check_finds() -> None:
    """One command installs and runs the daemon, one installs and runs the tests; `.ci/run` greps for them."""
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert [command.split("/")[-1] for command in commands] == ["mqbroker", "pytest"]
    assert all(command.startswith("python3 -m venv ") for command in commands)
