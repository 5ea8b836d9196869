"""Options in the forms of RocketMQ's tool."""

import pytest

from skylarkmq.clients.mqadmin.app.java_arguments import standard_arguments

OPTIONS = {"-t": True, "--topic": True, "-o": False, "--order": False, "--offset": True}


@pytest.mark.parametrize(
    ("given", "standard"),
    [
        (["-t", "A"], ["-t", "A"]),
        (["-t=A"], ["-t", "A"]),
        (["-topic", "A"], ["--topic", "A"]),
        (["--topic=A"], ["--topic", "A"]),
        (["--top", "A"], ["--topic", "A"]),
        (["-o", "-t", "A"], ["-o", "-t", "A"]),
        (["-t", "-topic", "-o"], ["-t", "-topic", "-o"]),
        (["--o", "A"], ["--o", "A"]),
        (["--unknown", "-x=1"], ["--unknown", "-x=1"]),
        (["-t", "a=b", "c"], ["-t", "a=b", "c"]),
        (["--", "-topic"], ["--", "-topic"]),
        (["-t"], ["-t"]),
    ],
)
def test_options_become_standard_options(given: list[str], standard: list[str]) -> None:
    """Values stay as they are; unknown and ambiguous options are left to the parser."""
    assert list(standard_arguments(given, OPTIONS)) == standard
