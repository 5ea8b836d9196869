"""How the tests of a run are distributed over the workers of xdist.

A module of the quick tier runs in one worker: its tests share a broker or a store, and one message carries the numbers
of all of them. Tests of the other tiers are long and are distributed one by one, except that

  - the tests of one interop module share brokers and clients that are slow to start; different modules run side by
    side, and so do modules whose tests share wheels, parsed sources, or daemons;
  - the tests that use Spark run in two workers, each of which has one session; those with a browser run in one.

xdist has the mode `loadgroup` for this, but it groups nothing under pytest 9.2 (pytest-xdist's issue 1386). So
`GroupScheduling` overrides the one method in which xdist's own modes differ.

The longest tests and groups start first, so that no worker ends long after the others. Then tests that mostly wait
start in turn with tests that mostly compute. Short tests start last.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from tests.harness.tiers import TIERS, has_slower_tests

ROOT: Final = Path(__file__).resolve().parent.parent.parent
USES_SPARK: Final = ("tests/spark/", "tests/interop/test_spark")
STARTS_SPARK: Final = ("tests/spark/test_matrix.py", "tests/spark/test_read_back.py")  # elsewhere, or not at all
SECOND_SESSION: Final = ("tests/spark/test_s", "tests/spark/test_t", "tests/interop/")
USES_BROWSER: Final = "tests/browser/"
ONE_WORKER_PER_MODULE: Final = (
    "tests/interop/", "tests/test_distribution.py", "tests/test_light_install.py", "tests/test_architecture.py",
    "tests/attack/test_access_attacks.py", "tests/documents/test_examples.py", "tests/test_supply_chain.py",
    "tests/ha/test_hostile_peers.py",
)  # fmt: skip
LONGEST: Final = (
    "tests/spark/",
    "tests/interop/test_java_slaves.py",
    "tests/interop/test_migration.py",
    "tests/crash/test_histories.py",
    "tests/interop/test_replica.py",
    "tests/test_install.py",
    "tests/crash/test_power_cut.py",
    "tests/test_distribution.py",
    "tests/attack/test_access_attacks.py",
    "tests/interop/test_timers.py",
    "tests/interop/test_store_exchange.py",
    "tests/interop/test_kubernetes.py",
)
"""Modules with tests of a minute and more, in the order in which they start."""
MIXED: Final = frozenset({"crash", "spark", "interop", "browser", "packaging"})
"""The tiers with the next longest tests: those of `crash` mostly compute, those of `interop` mostly wait."""


def start_keys(tests: Sequence[tuple[str, str]]) -> list[tuple[int, float]]:
    """Return for each (path, tier) the key by which the tests are sorted; the order within one tier does not change."""
    counts, seen = Counter(tier for _, tier in tests), Counter[str]()
    keys: list[tuple[int, float]] = []
    for path, tier in tests:
        number = next((number for number, start in enumerate(LONGEST) if path.startswith(start)), None)
        if number is not None:
            keys.append((0, number))
        elif tier in MIXED:
            keys.append((1, seen[tier] / counts[tier]))
        else:
            keys.append((2, TIERS.index(tier)))
        seen[tier] += 1
    return keys


@cache
def runs_in_one_worker(path: str) -> bool:
    """Return whether the tests of a module are one group; the path is relative to the repository."""
    return path.startswith(ONE_WORKER_PER_MODULE) or not has_slower_tests(ROOT / path)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Distributes tests one by one, except those of a group, which run in one worker."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith(USES_SPARK) and path not in STARTS_SPARK:
            return "spark 2" if path.startswith(SECOND_SESSION) else "spark 1"
        if path.startswith(USES_BROWSER):
            return "browser"
        return path if runs_in_one_worker(path) else nodeid
