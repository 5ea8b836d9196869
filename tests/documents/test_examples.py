"""Every example of every document runs and prints its documented output, or says why it does not run."""

import asyncio
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from docs.hooks.commands_page import commands
from skylarkmq.broker.app.in_process import InProcessBroker, running
from tests.documents.examples import (
    EXAMPLES,
    KEEPS_RUNNING,
    NOT_RUN,
    PAGES,
    ROOT,
    RUN_BY,
    Example,
    examples_of,
    matches,
    settings_of,
)
from tests.documents.session import Session
from tests.harness.limits import PROCESS_LIMIT_S

NAMESRV, ADDRESS = "127.0.0.1:9876", "127.0.0.1:10911"
MINE = [one for one in EXAMPLES if one.is_run_here]
PYTHON = [one for one in MINE if one.language == "python" and not one.title]
TESTS = [one for one in PYTHON if re.search(r"^(?:async )?def test_", one.code, re.MULTILINE)]
SCRIPTS = [one for one in PYTHON if one not in TESTS]
SESSIONS = sorted({one.page for one in MINE if one.is_shell})
INLINE_COMMAND = re.compile(r"`(mq[a-z-]+ [^`…\n]+)`")
COMMAND_LINE = re.compile(r"^(?:\$ )?(mq[\w-]+(?: .*)?)$", re.MULTILINE)


def named(example: Example) -> str:
    return example.name


def path_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


Brokers = Callable[[Path], InProcessBroker]


@pytest.fixture(scope="module")
def broker_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Return a function that returns the broker of a page, started with its first example."""
    brokers: dict[Path, InProcessBroker] = {}
    with ExitStack() as stack:

        def of(page: Path) -> InProcessBroker:
            if page not in brokers:
                directory = tmp_path_factory.mktemp("broker")
                brokers[page] = stack.enter_context(running(directory, settings_of(page)))
            return brokers[page]

        yield of


@pytest.mark.parametrize("page", sorted({one.page for one in SCRIPTS}), ids=path_of)
def test_the_scripts_of_a_page_print_their_documented_output(
    page: Path, broker_of: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scripts, in order and with the addresses of one broker, print the documented lines; concurrent ones in any
    order."""
    for example in (one for one in SCRIPTS if one.page == page):
        code = example.code
        if NAMESRV in code or ADDRESS in code:
            broker = broker_of(page)
            code = code.replace(NAMESRV, broker.namesrv).replace(ADDRESS, broker.address)
        exec(compile(code, example.name, "exec"), {"__name__": "__main__"})
        printed = sorted(capsys.readouterr().out.splitlines())
        expected = sorted((example.output or "").splitlines())
        assert matches("\n".join(expected), "\n".join(printed)), (example.name, printed)


@pytest.mark.parametrize("example", TESTS, ids=named)
def test_an_example_of_tests_passes(example: Example, broker_of: Brokers) -> None:
    """Each test of the example passes with a broker like that of the fixture."""
    names: dict[str, Any] = {}
    exec(compile(example.code, example.name, "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        result = test(broker_of(example.page))
        if inspect.iscoroutine(result):
            asyncio.run(result)


@pytest.mark.daemon
@pytest.mark.parametrize("page", SESSIONS, ids=path_of)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    """The commands of a page, in order and in one directory, succeed and print the documented output."""
    mine = [one for one in examples_of(page) if one.is_run_here and (one.is_shell or one.title)]
    for program in ("curl", "openssl"):
        if any(program in one.code for one in mine) and shutil.which(program) is None:
            pytest.skip(f"the command {program} is not installed")
    with Session(tmp_path) as session:
        for example in mine:
            session.do(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_a_mark_has_a_known_form(example: Example) -> None:
    """A test that is named exists and names the page; a reason is a text."""
    if example.mark.startswith(RUN_BY):
        test = ROOT / example.mark.removeprefix(RUN_BY)
        assert example.page.name in test.read_text()
    elif example.mark.startswith(NOT_RUN):
        assert len(example.mark.removeprefix(NOT_RUN).split()) > 2
    else:
        assert example.mark in {"", KEEPS_RUNNING}
    assert example.mark != KEEPS_RUNNING or example.is_shell


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.is_shell], ids=named)
def test_options_of_our_commands_exist(example: Example) -> None:
    """Each command line, also of examples that no test runs, has options and subcommands that exist."""
    for line in COMMAND_LINE.findall(example.code.replace("\\\n", " ")):
        words = shlex.split(line.partition(" | ")[0].removesuffix(" &"), comments=True)
        assert unknown_words(words) == [], line


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=path_of)
def test_options_of_our_commands_in_the_text_exist(page: Path) -> None:
    """Each command line in `code` within a sentence or a table has options and subcommands that exist."""
    lines = [shlex.split(line) for line in INLINE_COMMAND.findall(page.read_text())]
    assert [words for words in lines if words[0] in commands() and unknown_words(words)] == []


def unknown_words(words: list[str]) -> list[str]:
    """Return the options that the command of a command line does not have, or its unknown subcommand."""
    command: Any = commands()[words[0]][0]
    rest = words[2:] if words[1:2] == ["help"] else words[1:]
    while hasattr(command, "list_commands") and rest and not rest[0].startswith("-"):
        found = command.get_command(None, rest[0])
        if found is None:
            return rest[:1]
        command, rest = found, rest[1:]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    return [word for word in rest if re.match(r"--?[a-zA-Z]", word) and word.partition("=")[0] not in known]


@pytest.mark.packaging
def test_the_examples_are_typed(tmp_path: Path) -> None:
    """mypy --strict reports no error in any example that runs here."""
    files = []
    for number, example in enumerate(one for one in MINE if one.language == "python"):
        files.append(tmp_path / f"example_{number}.py")
        files[-1].write_text(example.code)
    # Use the settings of this repository, which are stricter, and its cache.
    command = [sys.executable, "-m", "mypy", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout


def test_examples_are_found() -> None:
    """Pages with blocks of code have examples: the parser knows every way in which they are written."""
    fences = {page: len(re.findall(r"^```(?:python|sh|bash)", page.read_text(), re.MULTILINE)) for page in PAGES}
    found = {
        page: len([one for one in EXAMPLES if one.page == page and one.language in {"python", "sh", "bash"}])
        for page in PAGES
    }
    assert found == fences
