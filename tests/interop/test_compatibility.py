"""docs/compatibility.md says what the plan asks for, and the tests try all of it: told without running any of them."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.interop
from tests.interop.cases import CLIENTS
from tests.interop.compatibility import CLIENT, FACTS, FAILS, NOT_RUN, OFFERED, PASSES, TRIED, Fact, Run, document, read
from tests.interop.matrix import FEATURES, LACKING, LEFT_OUT, MEANINGS, clients_with, pairs_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def planned() -> set[tuple[str, str]]:
    return {(client, feature) for feature in FEATURES for client in clients_with(feature)}


def report(test: str, outcome: str, *facts: tuple[str, ...], when: str = "call") -> pytest.TestReport:
    told = [(FACTS, [list(fact) for fact in facts])]
    return pytest.TestReport(test, ("", None, ""), {}, outcome, None, when, user_properties=told)  # type: ignore[arg-type]


def test_the_page_is_what_the_plan_makes_of_its_verdicts() -> None:
    """Clients, features, reasons: the page holds all of the plan, and nothing besides."""
    text = PAGE.read_text()
    verdicts = read(text)
    assert document(verdicts) == text
    assert {fact[1:] for fact in verdicts if fact[0] == CLIENT} == planned()


def test_every_client_is_tried_with_every_feature_that_it_has() -> None:
    """And with none that it lacks: marks and plan agree."""
    assert {pair for module in modules() for pair in pairs_tried(module)} == planned()


def test_the_plan_speaks_of_what_there_is() -> None:
    """Every reason is for a client and a feature, every feature is explained."""
    assert MEANINGS.keys() == FEATURES.keys()
    assert {client for client, _ in LACKING} <= CLIENTS.keys()
    assert {feature for _, feature in LACKING} <= FEATURES.keys()


def modules() -> Iterator[object]:
    for found in pkgutil.iter_modules(tests.interop.__path__):
        if found.name.startswith("test_"):
            yield importlib.import_module(f"tests.interop.{found.name}")


def pairs_tried(module: object) -> Iterator[tuple[str, str]]:
    """What the marks of a module's tests, of their parameters and of its fixtures' parameters say."""
    for thing in vars(module).values():
        marks: list[pytest.Mark] = list(getattr(thing, "pytestmark", []))
        parameters = [parameter for mark in marks if mark.name == "parametrize" for parameter in mark.args[1]]
        parameters += thing if isinstance(thing, list) else []
        for parameter in parameters:
            marks += [getattr(mark, "mark", mark) for mark in getattr(parameter, "marks", ())]
        yield from pairs_of(marks)


def test_a_fact_is_as_all_say_who_tell_it() -> None:
    """Passed by all: passes; failed by one, in whatever phase: fails; skipped by one: not run."""
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
    """Whatever the verdicts, the page tells them and nothing else; what is left out or not run is told as such."""
    verdicts: dict[Fact, str] = {(CLIENT, client, feature): PASSES for client, feature in planned()}
    verdicts[CLIENT, "cpp-0.4.4", "retry"] = FAILS
    verdicts[CLIENT, "go-2.1.2", "sql92"] = NOT_RUN
    commands: dict[Fact, str] = {(TRIED, "4.9.7", "topicList"): PASSES, (OFFERED, "5.3.3", "topicList"): PASSES}
    left_out: dict[Fact, str] = {(OFFERED, "5.3.3", name): PASSES for name in LEFT_OUT}
    text = document(verdicts | commands | left_out)
    assert document(read(text)) == text
    assert "| `topicList` | ✓ | not run |" in text
    assert {fact: verdict for fact, verdict in read(text).items() if fact[0] == CLIENT} == verdicts
