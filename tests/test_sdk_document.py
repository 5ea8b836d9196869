"""The examples of docs/sdk.md run unchanged, print the output below them, and pass mypy --strict."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.in_process import InProcessBroker, running

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = (ROOT / "docs" / "sdk.md").read_text()
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL)
NAMESRV = "127.0.0.1:9876"
SETTINGS = {"recallMessageEnable": True, "traceTopicEnable": True, "messageDelayLevel": "1s 1s 1s"}


def examples() -> list[tuple[str, str]]:
    """Return each example with its output; "" for an example that is a test."""
    return [(found[1], found[2] or "") for found in EXAMPLE.finditer(DOCUMENT)]


SCRIPTS = [(code, prints) for code, prints in examples() if prints]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.mark.parametrize(("code", "prints"), SCRIPTS, ids=range(len(SCRIPTS)))
def test_an_example_prints_its_documented_output(
    code: str, prints: str, broker: InProcessBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """An example, run as a script with the address of the broker, prints the documented output."""
    assert NAMESRV in code
    program = compile(code.replace(NAMESRV, broker.namesrv), "example.py", "exec")
    exec(program, {"__name__": "__main__"})
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(prints.splitlines())


async def test_the_other_examples_are_tests_and_pass(broker: InProcessBroker) -> None:
    """The example of tests passes with a broker like that of the fixture (tests/test_readme.py uses the plugin)."""
    (code,) = (code for code, prints in examples() if not prints)
    names: dict[str, Any] = {}
    exec(compile(code, "test_example.py", "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        await test(broker)


@pytest.mark.packaging
def test_the_examples_are_typed(tmp_path: Path) -> None:
    """mypy --strict reports no error in any example."""
    files = []
    for number, (code, _) in enumerate(examples()):
        files.append(tmp_path / f"example_{number}.py")
        files[-1].write_text(code)
    # Use the settings of this repository, which are stricter, and its cache.
    command = [sys.executable, "-m", "mypy", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_the_document_has_an_example_of_each_entry_point() -> None:
    """Every method of a connection that creates a client is in an example."""
    all_code = "\n".join(code for code, _ in examples())
    made = ("producer(", "transaction_producer(", "consumer(", "pull_consumer(", "admin(")
    for call in ("skylarkmq.connect(", "blocking.connect(", *(f"mq.{method}" for method in made)):
        assert call in all_code
