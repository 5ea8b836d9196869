"""`.ci/run`, the hooks before a commit and the Makefile check the same, and CONTRIBUTING.md names the commands."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CI: Final = (ROOT / ".ci" / "run").read_text()
CONTRIBUTING: Final = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS: Final = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def commands_of(target: str) -> list[str]:
    """Return the commands that `make` would run for this target."""
    command = ["make", "--no-print-directory", "--dry-run", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_all_lists_of_checks_are_equal() -> None:
    """Style, format and types: `run_the_checks` of `.ci/run`, the hooks before a commit, and `make check`."""
    function = re.search(r"^run_the_checks\(\) \{.*?\n(.*?)^\}", CI, re.MULTILINE | re.DOTALL)
    assert function is not None
    checks = re.findall(r'stage "[^"]+" (.+)', function.group(1))
    assert len(checks) == len(function.group(1).splitlines()) == 3
    hooks: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]] == checks
    assert commands_of("check") == checks


def test_tests_read_the_variables_that_make_ci_short() -> None:
    """A renamed variable would have no effect."""
    found = re.search(r'^readonly SHORT_ROUNDS="(.+?)"', CI, re.MULTILINE | re.DOTALL)
    assert found is not None
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    names = [each.partition("=")[0] for each in found.group(1).split()]
    assert [name for name in names if not any(f'"{name}"' in text for text in texts)] == []


def test_hooks_before_a_commit_download_nothing_and_check_all_files() -> None:
    """As CI does: they run programs of the virtual environment over the whole tree."""
    hooks: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    for hook in hooks["repos"][0]["hooks"]:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)
        assert hook["entry"].startswith(".venv/bin/")


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_of_the_makefile_runs_commands_and_is_documented(target: str) -> None:
    """In its own help, and in CONTRIBUTING.md."""
    assert commands_of(target)
    assert f"`make {target}" in CONTRIBUTING or target == "help"
    assert target in subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
