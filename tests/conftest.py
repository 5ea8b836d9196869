"""What holds for every test: the product's event loop, the order of kinds, and no silent skips in CI.

A test is of the kind of its marker (fuzz, crash, spark, interop), or a unit test without one. Units run first and
interop last, and the terminal summary says how long each kind took. Under `CI=true` a skipped test of interop or Spark
counts as failed: there the toolchains are present, and a skip would hide that a client was never tried.

Several workers (`-n 2 --dist loadgroup`) share all tests but those of one kind that share what is dear to start: the
official brokers and clients, Spark.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping

import pytest
import uvloop

KINDS = ("unit", "fuzz", "crash", "spark", "interop")
NEVER_SKIPPED_IN_CI = frozenset({"spark", "interop"})
IN_ONE_WORKER = frozenset({"spark", "interop"})
FUZZ_ROUNDS = 100_000

seconds_by_kind: defaultdict[str, float] = defaultdict(float)


def kind_of(item: pytest.Item) -> str:
    return next((kind for kind in reversed(KINDS) if item.get_closest_marker(kind)), "unit")


@pytest.fixture(scope="session")
def fuzz_rounds() -> int:
    """How many random inputs a fuzz test tries: SKYLARK_FUZZ, or what CI asks for."""
    return int(os.environ.get("SKYLARK_FUZZ", FUZZ_ROUNDS))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: KINDS.index(kind_of(item)))
    for item in items:
        if (kind := kind_of(item)) in IN_ONE_WORKER:
            item.add_marker(pytest.mark.xdist_group(kind))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties.append(("kind", kind_of(item)))
    if report.skipped and kind_of(item) in NEVER_SKIPPED_IN_CI and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {report.longreprtext}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds_by_kind[str(dict(report.user_properties)["kind"])] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    spent = ", ".join(f"{kind} {seconds_by_kind[kind]:.0f} s" for kind in KINDS if kind in seconds_by_kind)
    terminalreporter.write_line(f"time by kind of test: {spent or 'none'}")
