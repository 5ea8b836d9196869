"""How the tests of a run are distributed over the workers of xdist.

A module of the quick tier runs in one worker: its tests share a broker or a store, and one message carries the numbers
of all of them. Tests of the other tiers are long and are distributed one by one, except that

  - the tests of one interop module share brokers and clients that are slow to start; different modules run side by
    side, and so do modules whose tests share wheels or parsed sources;
  - all tests that use Spark run in one worker, which has one session, and so do those with a browser.

xdist has the mode `loadgroup` for this, but it groups nothing under pytest 9.2.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

from tests.harness.tiers import TEST_OF_A_SLOWER_TIER

ROOT: Final = Path(__file__).resolve().parent.parent.parent
USES_SPARK: Final = ("tests/spark/", "tests/interop/test_spark")
STARTS_SPARK: Final = ("tests/spark/test_matrix.py", "tests/spark/test_read_back.py")  # elsewhere, or not at all
USES_BROWSER: Final = "tests/browser/"
ONE_WORKER_PER_MODULE: Final = (
    *("tests/interop/", "tests/test_distribution.py", "tests/test_light_install.py", "tests/test_architecture.py"),
)


@cache
def runs_in_one_worker(path: str) -> bool:
    """Return whether the tests of a module are one group; the path is relative to the repository."""
    return path.startswith(ONE_WORKER_PER_MODULE) or not TEST_OF_A_SLOWER_TIER.search((ROOT / path).read_text())


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Distributes tests one by one, except those of a group, which run in one worker.

    xdist searches lists of all tests for each one that it sends, and counts those of all groups after each test. With
    10,000 tests that takes seconds. This class has an index instead, and forgets complete groups.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._index_of: dict[object, dict[str, int]] = {}

    def add_node_collection(self, node: object, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        self._index_of[node] = {nodeid: index for index, nodeid in enumerate(collection)}

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith(USES_SPARK) and path not in STARTS_SPARK:
            return "spark"
        if path.startswith(USES_BROWSER):
            return "browser"
        return path if runs_in_one_worker(path) else nodeid

    def _assign_work_unit(self, node: Any) -> None:
        scope, group = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = group
        index_of = self._index_of[node]
        node.send_runtest_some([index_of[nodeid] for nodeid, is_complete in group.items() if not is_complete])

    def mark_test_complete(self, node: object, item_index: int, duration: float = 0) -> None:
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        group = self.assigned_work[node][scope]
        group[nodeid] = True
        if all(group.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)
