"""Rules for every test: the product's event loop, the tiers, and no silent skips in CI.

The tier of a test is its marker. Tests without one are the quick tier, which `pytest` runs by default: it needs no
network, no Java, Node or Go, and 90 s on two cores. The other tiers:

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
  - pytest does not rewrite the assertions of the product's modules, which it does for every package with a plugin;
  - files are not synced, unless all rounds are wanted (see below); tests/harness/quick_run.py has this and the like;
  - workers and the processes that tests start write and share bytecode, also if PYTHONDONTWRITEBYTECODE is set: each
    one would otherwise compile the product and rewrite the tests again;
  - each worker collects only the modules that it runs (tests/harness/shards.py).

Tests that compare two versions try an eighth of their random inputs, and hypothesis tries no constants of the product,
unless SKYLARK_ALL_ROUNDS is set, as in CI (tests/harness/rounds.py). Clients try again after 50 ms instead of 1 s
(tests/clients/conftest.py).

The terminal summary gives the time of each tier. With `CI=true` a skipped interop, browser or Spark test counts as
failed: the toolchains are present there, and a skip would hide that a client was not tested.

tests/harness/scheduling.py distributes the tests over the workers of xdist; worker_events.py has their messages.
"""

import asyncio
import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
import uvloop
from hypothesis.internal.conjecture import providers

from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.quick_run import with_fast_brokers, with_kept_commands, without_syncs
from tests.harness.rounds import PART, rounds
from tests.harness.scheduling import GroupScheduling, start_keys
from tests.harness.shards import MORE_WORKERS, ShardScheduling, assign_shard, has_shards, is_of_another_shard
from tests.harness.tiers import QUICK, QUICK_RUN, SLOWER_TIERS, TIERS, has_only_slower_tests, has_slower_tests, tier_of
from tests.harness.worker_events import receive_events_together, send_events_together

PRODUCT = frozenset({"skylarkmq", "pyspark_rocketmq", "pyspark_rocketmq_store"})
NEVER_SKIPPED_IN_CI = frozenset({"spark", "browser", "interop"})
FUZZ_ROUNDS = 100_000
GC_THRESHOLDS: Final = (20_000, 20, 20)
MANY_DESCRIPTORS: Final = 256

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # until the tests are collected: nothing of them is garbage
for number in (signal.SIGINT, signal.SIGQUIT):  # a shell ignores them in background jobs, whose processes inherit that
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

hypothesis.settings.register_profile(  # the machine's speed fails no test
    "skylark", deadline=None, max_examples=rounds(100), suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("skylark")
if PART != 1:  # hypothesis parses all modules for constants to try
    providers._get_local_constants = lambda: providers._local_constants

TIER: Final = pytest.StashKey[str]()
seconds_by_tier: defaultdict[str, float] = defaultdict(float)


def pytest_configure(config: pytest.Config) -> None:
    """Import the product's modules unchanged, and let a worker of xdist send less."""
    if hasattr(config, "workerinput"):
        send_events_together(config)
    if config.getoption("markexpr") == QUICK_RUN and PART != 1:
        without_syncs()
    hook = config.pluginmanager.rewrite_hook
    hook._must_rewrite.difference_update(PRODUCT)  # type: ignore[attr-defined]  # private: pytest has no setting for it


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore a module without a test of the wanted tiers. In a run of the quick tier, ignore that of another shard."""
    tiers: str = config.getoption("markexpr")
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    if tiers == QUICK_RUN:
        is_ignored = is_of_another_shard(collection_path, config) or has_only_slower_tests(collection_path)
    else:
        is_ignored = set(tiers.split(" or ")) <= SLOWER_TIERS and not has_slower_tests(collection_path)
    return is_ignored or None


@pytest.fixture(scope="session")
def fuzz_rounds() -> int:
    """Return how many random inputs a fuzz test tries: SKYLARK_FUZZ, or the number that CI uses."""
    return int(os.environ.get("SKYLARK_FUZZ", FUZZ_ROUNDS))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests, in workers also by path. Tests of slower tiers may take long."""
    for item in items:
        tier = item.stash[TIER] = tier_of(item)
        item.user_properties.append(("tier", tier))
        if tier != QUICK and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3 * PROCESS_LIMIT_S))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parts)
    paths = (item.nodeid.partition("::")[0] for item in items)
    keys = start_keys([(path, item.stash[TIER]) for path, item in zip(paths, items, strict=True)])
    items[:] = [item for _, item in sorted(zip(keys, items, strict=True), key=lambda pair: pair[0])]


def pytest_collection_finish() -> None:
    """Exclude what the collection made from garbage collections: it stays until the end, and thousands of items cost a
    full collection 0.3 s. Later collections are rarer than by default, with which they take 7 % of a quick run."""
    gc.enable()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    with_fast_brokers()
    with_kept_commands()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect garbage if it may hold descriptors: those of brokers and event loops, which are cycles, stay open until
    the next full collection."""
    if item.stash[TIER] != QUICK and len(os.listdir("/proc/self/fd")) > MANY_DESCRIPTORS:
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start one worker more than processors if each of them collects only its shard. None: as many as xdist chooses."""
    return len(os.sched_getaffinity(0)) + MORE_WORKERS if has_shards(config) else None


def pytest_configure_node(node: Any) -> None:
    if has_shards(node.config):
        assign_shard(node)
    receive_events_together(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling | ShardScheduling:
    return ShardScheduling(config, log) if has_shards(config) else GroupScheduling(config, log)


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
