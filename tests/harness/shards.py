"""The shards of a run of the quick tier: each worker of xdist collects and runs modules of its own.

A worker imports and collects only what it runs. One worker more than processors uses the time in which tests wait.

The modules are dealt to the workers in the order of their sizes. Files that are given as arguments are not dealt: each
worker collects them all, and `GroupScheduling` distributes their tests.
"""

from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import EachScheduling

from tests.harness.tiers import QUICK_RUN

TESTS: Final = Path(__file__).resolve().parent.parent
SHARD: Final = "skylark_shard"
MORE_WORKERS: Final = 1


def has_shards(config: pytest.Config) -> bool:
    """Return whether the workers of this run collect different modules. `config` is that of the main process."""
    return config.getoption("markexpr") == QUICK_RUN and all(Path(each).is_dir() for each in config.args)


def assign_shard(node: Any) -> None:
    """In the main process, give a worker its shard; one that replaces a crashed worker gets the same one.

    `node` is xdist's object for the worker. Both workers have one object for their specification.
    """
    spec = node.gateway.spec
    if spec.shard is None:
        spec.shard = int(node.gateway.id.removeprefix("gw"))
    node.workerinput[SHARD] = spec.shard


def is_of_another_shard(path: Path, config: pytest.Config) -> bool:
    """Return whether another worker collects this module of tests."""
    worker = getattr(config, "workerinput", {})
    return SHARD in worker and shards(worker["workercount"]).get(path, worker[SHARD]) != worker[SHARD]


@cache
def shards(count: int) -> dict[Path, int]:
    """Return the shard of each module of tests, dealt in the order of their sizes: 0, 1, 1, 0, 0, 1, ..."""
    modules = sorted(TESTS.rglob("test_*.py"), key=lambda path: (-path.stat().st_size, path))
    return dict(zip(modules, cycle([*range(count), *reversed(range(count))]), strict=False))


class ShardScheduling(EachScheduling):  # type: ignore[misc]  # xdist has no types
    """Lets each worker run all tests that it has collected."""

    def schedule(self) -> None:
        session: Any = self.config.pluginmanager.get_plugin("session")
        session.testscollected = sum(map(len, self.node2collection.values()))  # xdist sets the number of one worker
        super().schedule()
