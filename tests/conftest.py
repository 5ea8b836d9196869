"""Rules for every test: the product's event loop, the tiers, and no silent skips in CI.

The tier of a test is its marker. Tests without one are the quick tier, which `pytest` runs by default: it needs no
network, no Java, Node or Go, and 90 s on two cores. The other tiers:

    packaging   builds wheels, installs them in new environments, runs the image's commands
    daemon      starts a whole broker or name server, mostly as a process
    crash       cuts the daemon or a simulated disk in the middle of its work
    fuzz        feeds random input in large numbers
    spark       runs a real Spark (Java 17)
    browser     opens the console in Chromium
    interop     runs RocketMQ's official clients, tools and brokers (Java 17, Maven, Node, Go)

    pytest -m ""            every tier
    pytest -m daemon        one of them

Starting is most of the CPU time of a short run, so that:

  - a run of the quick tier imports no module whose tests all belong to other tiers (they load Spark, for example);
  - pytest does not rewrite the assertions of the product's modules, which it does for every package with a plugin;
  - workers and the processes that tests start write and share bytecode, also if PYTHONDONTWRITEBYTECODE is set: each
    one would otherwise compile the product and rewrite the tests again.

Tests that compare two versions try a fourth of their random inputs, unless SKYLARK_ALL_ROUNDS is set, as in CI
(tests/harness/rounds.py). Clients try again after 50 ms instead of 1 s (tests/clients/conftest.py).

The terminal summary gives the time of each tier. With `CI=true` a skipped interop, browser or Spark test counts as
failed: the toolchains are present there, and a skip would hide that a client was not tested.

Tests of one interop module run in one worker, because they share brokers and clients that are slow to start; different
modules run side by side. So do modules whose tests share wheels or parsed sources. All tests that use Spark run in one
worker, which has one session, and so do those with a browser.
"""

import asyncio
import gc
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import hypothesis
import pytest
import uvloop
from xdist.scheduler import LoadScopeScheduling

TIERS = ("crash", "spark", "interop", "browser", "packaging", "fuzz", "daemon", "quick")
"""In the order in which they start: the longest tests first, so that no worker idles at the end."""
QUICK_TIER = "not (packaging or daemon or crash or fuzz or spark or browser or interop)"
"""The marker expression of a plain `pytest` (pyproject.toml)."""
OF_ANOTHER_TIER = re.compile(rf"^pytestmark = .*pytest\.mark\.({'|'.join(TIERS[:-1])})\b", re.MULTILINE)
PRODUCT = frozenset({"skylarkmq", "pyspark_rocketmq", "pyspark_rocketmq_store"})
NEVER_SKIPPED_IN_CI = frozenset({"spark", "browser", "interop"})
USES_SPARK = ("tests/spark/", "tests/interop/test_spark")
STARTS_SPARK = ("tests/spark/test_matrix.py", "tests/spark/test_read_back.py")  # in other processes, or not at all
USES_BROWSER = "tests/browser/"
ONE_WORKER_PER_MODULE = (
    *("tests/interop/", "tests/test_distribution.py", "tests/test_light_install.py", "tests/test_architecture.py"),
)
SLOW_TIERS_LIMIT_S = 1_200
FUZZ_ROUNDS = 100_000

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

hypothesis.settings.register_profile(  # the machine's speed fails no test
    "skylark", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("skylark")

seconds_by_tier: defaultdict[str, float] = defaultdict(float)


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test; of a test with two markers, the one that comes first in TIERS."""
    return next((tier for tier in TIERS if item.get_closest_marker(tier)), TIERS[-1])


def pytest_configure(config: pytest.Config) -> None:
    """Import the product's modules unchanged."""
    hook = config.pluginmanager.rewrite_hook
    hook._must_rewrite.difference_update(PRODUCT)  # type: ignore[attr-defined]  # private: pytest has no setting for it


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore a module of another tier in a run of the quick tier."""
    if config.getoption("markexpr") != QUICK_TIER or collection_path.suffix != ".py":
        return None
    return True if OF_ANOTHER_TIER.search(collection_path.read_text()) else None


@pytest.fixture(scope="session")
def fuzz_rounds() -> int:
    """Return how many random inputs a fuzz test tries: SKYLARK_FUZZ, or the number that CI uses."""
    return int(os.environ.get("SKYLARK_FUZZ", FUZZ_ROUNDS))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by tier. Outside the quick tier, a test may take long on a busy machine."""
    items.sort(key=lambda item: TIERS.index(tier_of(item)))
    for item in items:
        if tier_of(item) != TIERS[-1] and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_TIERS_LIMIT_S))


def pytest_collection_finish() -> None:
    """Exclude what the collection made from garbage collections: it stays until the end, and thousands of items cost a
    full collection 0.3 s."""
    gc.collect()
    gc.freeze()


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Distributes tests one by one, except those of a group, which run in one worker.

    xdist has the mode `loadgroup` for this, but it groups nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith(USES_SPARK) and path not in STARTS_SPARK:
            return "spark"
        if path.startswith(USES_BROWSER):
            return "browser"
        return path if path.startswith(ONE_WORKER_PER_MODULE) else nodeid

    def mark_test_complete(self, node: object, item_index: int, duration: float = 0) -> None:
        """Forget a group that is complete.

        xdist keeps all of them and counts them again after each test, which cost 10 s of CPU for 8,000 tests.
        """
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        group = self.assigned_work[node][scope]
        group[nodeid] = True
        if all(group.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties.append(("tier", tier_of(item)))
    if report.skipped and tier_of(item) in NEVER_SKIPPED_IN_CI and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {report.longreprtext}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds_by_tier[str(dict(report.user_properties)["tier"])] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    spent = ", ".join(f"{tier} {seconds_by_tier[tier]:.0f} s" for tier in TIERS if tier in seconds_by_tier)
    terminalreporter.write_line(f"time by tier: {spent or 'none'}")
