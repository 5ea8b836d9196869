"""Rules for every test: the product's event loop, the tiers, and no silent skips in CI.

The tier of a test is its marker. Tests without one are the quick tier, which `pytest` runs by default: it needs no
network, no Java, Node or Go, and less than two minutes on two cores. The other tiers:

    packaging   builds wheels, installs them in new environments, runs the image's commands
    daemon      starts a whole broker, name server or command, mostly as a process; or worker processes
    crash       cuts the daemon, a job or a simulated disk in the middle of its work
    fuzz        feeds random input in large numbers
    spark       runs a real Spark (Java 17), or maintains tables of Iceberg
    browser     opens the console in Chromium
    interop     runs RocketMQ's official clients, tools and brokers (Java 17, Maven, Node, Go)

    pytest -m ""            every tier
    pytest -m daemon        one of them

Starting is most of the CPU time of a short run, so that:

  - a run of the quick tier imports no module whose tests all belong to other tiers (they load Spark, for example), and
    a run of other tiers imports no module whose tests are all quick;
  - files are not synced in a run of the quick tier, unless all rounds are wanted (see below);
  - workers and the processes that tests start write and share bytecode, also if PYTHONDONTWRITEBYTECODE is set: each
    one would otherwise compile the product and rewrite the tests again.

Tests that compare two versions try an eighth of their random inputs unless SKYLARK_ALL_ROUNDS is set
(tests/harness/rounds.py). Clients try again after 50 ms instead of 1 s (tests/clients/conftest.py).

The terminal summary gives the time of each tier. With `CI=true` a skipped interop, browser or Spark test counts as
failed: the toolchains are present there, and a skip would hide that a client was not tested.

tests/harness/scheduling.py distributes the tests over the workers of xdist.
"""

import asyncio
import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final

import hypothesis
import pytest
import uvloop

from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.rounds import PART, rounds
from tests.harness.scheduling import GroupScheduling, start_keys
from tests.harness.tiers import QUICK, QUICK_RUN, SLOWER_TIERS, TIERS, has_only_slower_tests, has_slower_tests, tier_of

NEVER_SKIPPED_IN_CI = frozenset({"spark", "browser", "interop"})
FUZZ_ROUNDS = 100_000
MANY_DESCRIPTORS: Final = 256

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for number in (signal.SIGINT, signal.SIGQUIT):  # a shell ignores them in background jobs, whose processes inherit that
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

hypothesis.settings.register_profile(  # the machine's speed fails no test
    "skylark", deadline=None, max_examples=rounds(100), suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("skylark")

TIER: Final = pytest.StashKey[str]()
seconds_by_tier: defaultdict[str, float] = defaultdict(float)


def pytest_configure(config: pytest.Config) -> None:
    """Let os.fsync and os.fdatasync do nothing in a run of the quick tier, none of whose tests cuts the power.

    That saves 10 to 15 s on two cores: the tests call them 78,000 times, and a call takes 0.4 ms with a fast disk.
    """
    if config.getoption("markexpr") == QUICK_RUN and PART != 1:
        for name in ("fsync", "fdatasync"):
            setattr(os, name, lambda fd: None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore a module without a test of the wanted tiers."""
    tiers: str = config.getoption("markexpr")
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    if tiers == QUICK_RUN:
        is_ignored = has_only_slower_tests(collection_path)
    else:
        is_ignored = set(tiers.split(" or ")) <= SLOWER_TIERS and not has_slower_tests(collection_path)
    return is_ignored or None


@pytest.fixture(scope="session")
def fuzz_rounds() -> int:
    """Return how many random inputs a fuzz test tries: SKYLARK_FUZZ, or 100,000."""
    return int(os.environ.get("SKYLARK_FUZZ", FUZZ_ROUNDS))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests. Tests of slower tiers may take long."""
    for item in items:
        tier = item.stash[TIER] = tier_of(item)
        item.user_properties.append(("tier", tier))
        if tier != QUICK and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3 * PROCESS_LIMIT_S))
    paths = (item.nodeid.partition("::")[0] for item in items)
    keys = start_keys([(path, item.stash[TIER]) for path, item in zip(paths, items, strict=True)])
    items[:] = [item for _, item in sorted(zip(keys, items, strict=True), key=lambda pair: pair[0])]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect garbage if it may hold descriptors: those of brokers and event loops, which are cycles, stay open until
    the next full collection."""
    if item.stash[TIER] != QUICK and len(os.listdir("/proc/self/fd")) > MANY_DESCRIPTORS:
        gc.collect()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.stash[TIER] in NEVER_SKIPPED_IN_CI and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {report.longreprtext}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds_by_tier[str(dict(report.user_properties).get("tier", QUICK))] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    spent = ", ".join(f"{tier} {seconds_by_tier[tier]:.0f} s" for tier in TIERS if tier in seconds_by_tier)
    terminalreporter.write_line(f"time by tier: {spent or 'none'}")
