"""The examples of all documents: fenced blocks of code, with the output below them and the mark above them.

A mark is an HTML comment on the line before a block:

    <!-- example: keeps running -->               a daemon: it runs until the other examples of the page have ended
    <!-- example: run by tests/test_tls_document.py -->      a test of its own runs the block
    <!-- example: not run: it needs several machines -->     the reason why no test runs it

Without a mark:

    python            runs against a broker, and prints the block ```text below it; or has tests, which get the broker
    a block with a title        is a file in the directory of the page's shell commands
    sh, bash          the commands of a page run one after the other in one directory, and print the block below them

`…` in an output stands for any text on its line. `<!-- examples need {"key": "value"} -->` in a page gives the settings
of the broker for its Python examples.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"])
SHELL: Final = ("sh", "bash")
KEEPS_RUNNING: Final = "keeps running"
NOT_RUN: Final = "not run: "
RUN_BY: Final = "run by "
FENCE: Final = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?$")
MARK: Final = re.compile(r"^<!-- example: (.+) -->$")
NEEDS: Final = re.compile(r"^<!-- examples need (\{.*\}) -->$", re.MULTILINE)


class Example(NamedTuple):
    """A block of code. `output`: the text below it, or None."""

    page: Path
    line: int
    language: str
    title: str
    code: str
    mark: str
    output: str | None

    @property
    def name(self) -> str:
        """Return page and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_shell(self) -> bool:
        """Return whether it contains shell commands."""
        return self.language in SHELL

    @property
    def is_run_here(self) -> bool:
        """Return whether no other test runs it."""
        return not self.mark.startswith((NOT_RUN, RUN_BY))


def examples_of(page: Path) -> list[Example]:
    """Return the examples of a page in their order. Blocks of output are part of the example above."""
    found: list[Example] = []
    for line, language, title, code, mark, follows in blocks(page.read_text()):
        if language == "text" and follows and found:
            found[-1] = found[-1]._replace(output=code)
        elif language in {*SHELL, "python"} or title:
            found.append(Example(page, line, language, title, code, mark, None))
    return found


def blocks(text: str) -> Iterator[tuple[int, str, str, str, str, bool]]:
    """Yield line, language, title, code and mark of each block, and whether only a blank line is between it and the
    block before."""
    lines = text.splitlines()
    number = end = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        begin = number + 1
        number = next(at for at in range(begin, len(lines)) if lines[at] == "```")
        mark = MARK.match(lines[begin - 2]) if begin > 1 else None
        code = "".join(f"{line}\n" for line in lines[begin:number])
        yield begin, fence[1], fence[2] or "", code, mark[1] if mark else "", end > 0 and begin - 1 == end + 2
        end = number
        number += 1


def settings_of(page: Path) -> dict[str, Any]:
    """Return the settings of the broker for the Python examples of a page."""
    found = NEEDS.search(page.read_text())
    settings: dict[str, Any] = json.loads(found[1]) if found else {}
    return settings


def matches(output: str, printed: str) -> bool:
    """Return whether a program printed the documented output."""
    pattern = ".*".join(re.escape(part) for part in output.strip().split("…"))
    return re.fullmatch(pattern, printed.strip()) is not None


EXAMPLES: Final = [example for page in PAGES for example in examples_of(page)]
