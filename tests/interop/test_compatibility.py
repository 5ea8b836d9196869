"""docs/reference/compatibility.md matches the plan, and the tests cover the plan. No client runs for these checks."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.interop
from tests.interop.cases import CLIENTS
from tests.interop.compatibility import CLIENT, FACTS, FAILS, NOT_RUN, OFFERED, PASSES, TRIED, Fact, Run, document, read
from tests.interop.matrix import FEATURES, LACKING, LEFT_OUT, MEANINGS, clients_with, pairs_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compatibility.md"


def planned() -> set[tuple[str, str]]:
    return {(client, feature) for feature in FEATURES for client in clients_with(feature)}


def report(test: str, outcome: str, *facts: tuple[str, ...], when: str = "call") -> pytest.TestReport:
    properties = [(FACTS, [list(fact) for fact in facts])]
    return pytest.TestReport(test, ("", None, ""), {}, outcome, None, when, user_properties=properties)  # type: ignore[arg-type]


def test_the_page_matches_the_plan() -> None:
    """The page contains all clients, features and reasons of the plan, and nothing else."""
    text = PAGE.read_text()
    verdicts = read(text)
    assert document(verdicts) == text
    assert {fact[1:] for fact in verdicts if fact[0] == CLIENT} == planned()


@pytest.mark.interop
def test_the_tests_cover_the_plan() -> None:
    """The marks of the tests name each client with each feature that it has, and no other pair."""
    assert {pair for module in modules() for pair in pairs_of_tests(module)} == planned()


def test_the_plan_is_complete() -> None:
    """Every reason belongs to a known client and feature, and every feature has an explanation."""
    assert MEANINGS.keys() == FEATURES.keys()
    assert {client for client, _ in LACKING} <= CLIENTS.keys()
    assert {feature for _, feature in LACKING} <= FEATURES.keys()


def modules() -> Iterator[object]:
    for found in pkgutil.iter_modules(tests.interop.__path__):
        if found.name.startswith("test_"):
            yield importlib.import_module(f"tests.interop.{found.name}")


def pairs_of_tests(module: object) -> Iterator[tuple[str, str]]:
    """Return the pairs in the marks of a module's tests, their parameters and its fixtures' parameters."""
    for thing in vars(module).values():
        marks: list[pytest.Mark] = list(getattr(thing, "pytestmark", []))
        parameters = [parameter for mark in marks if mark.name == "parametrize" for parameter in mark.args[1]]
        parameters += thing if isinstance(thing, list) else []
        for parameter in parameters:
            marks += [getattr(mark, "mark", mark) for mark in getattr(parameter, "marks", ())]
        yield from pairs_of(marks)


def test_a_verdict_follows_from_all_tests_of_a_fact() -> None:
    """All passed: passes. One failed, in any phase: fails. One skipped: not run."""
    run = Run()
    good, bad, open_ = ("client", "a", "x"), ("client", "a", "y"), ("client", "a", "z")
    run.note(report("one", "passed", good, bad, open_))
    run.note(report("two", "passed", good, bad))
    run.note(report("two", "failed", good, bad, when="teardown"))
    run.note(report("three", "skipped", open_, when="setup"))
    assert run.verdicts() == {good: FAILS, bad: FAILS, open_: NOT_RUN}
    run = Run()
    run.note(report("one", "passed", when="setup"))
    run.note(report("one", "passed"))
    run.note(report("one", "passed", good, when="teardown"))
    assert run.verdicts() == {good: PASSES}


def test_a_page_can_be_read_back() -> None:
    """Reading a page returns the verdicts from which it was written, also of commands that are left out or not run."""
    verdicts: dict[Fact, str] = {(CLIENT, client, feature): PASSES for client, feature in planned()}
    verdicts[CLIENT, "cpp-0.4.4", "retry"] = FAILS
    verdicts[CLIENT, "go-2.1.2", "sql92"] = NOT_RUN
    commands: dict[Fact, str] = {(TRIED, "4.9.7", "topicList"): PASSES, (OFFERED, "5.3.3", "topicList"): PASSES}
    left_out: dict[Fact, str] = {(OFFERED, "5.3.3", name): PASSES for name in LEFT_OUT}
    text = document(verdicts | commands | left_out)
    assert document(read(text)) == text
    assert "| `topicList` | ✓ | not run |" in text
    assert {fact: verdict for fact, verdict in read(text).items() if fact[0] == CLIENT} == verdicts
