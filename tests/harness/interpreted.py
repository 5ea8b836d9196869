"""The tests that `.ci/run long` repeats without compiled modules; `.ci/run` repeats only those with a whole daemon.

The pure-Python versions replace compiled modules only in the modules that call `compiled.load`. So the tests that may
have another outcome are the quick tests of their packages, and those in which such a package is a part of a whole
daemon. All other tests call these packages through the interfaces that their tests hold.

A package is the smallest folder that contains all such modules of one folder of `broker` or `clients`: `broker/store`,
`broker/ha/link`. `protocol` is one package. A module without a folder has its tests in a file beside the folders.

    python -m tests.harness.interpreted packages     print the folders and files of the packages' quick tests
    python -m tests.harness.interpreted daemons      print the modules that run a whole daemon
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from os.path import commonpath
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PARTS: Final = ("protocol", "broker", "clients")
LOADS: Final = "compiled.load("
DAEMONS: Final = ("tests/broker/app/test_daemon.py", "tests/broker/test_golden_daemon.py")
"""A daemon serves clients, starts again after a kill and after a stop, and continues stores of RocketMQ."""


def loading_modules() -> Iterator[Path]:
    """Yield the modules that load a compiled one, relative to the repository."""
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            if LOADS in path.read_text():
                yield path.relative_to(ROOT)


def packages() -> list[str]:
    """Return the folders and files of the packages' tests, relative to the repository."""
    modules: defaultdict[tuple[str, ...], list[Path]] = defaultdict(list)
    for module in loading_modules():
        part, *rest = module.parts
        modules[part, *([] if part == PARTS[0] else rest[:1])].append(module)
    return sorted(folder_of(each) for each in modules.values())


def folder_of(modules: list[Path]) -> str:
    """Return the folder with the tests of these modules, or the file with those of a module without a folder."""
    first = modules[0]
    if first.parts[0] == PARTS[0]:
        return f"tests/{PARTS[0]}"
    if len(first.parts) == 2:
        return f"tests/{first.parent}/test_{first.name}"
    return f"tests/{commonpath([module.parent for module in modules])}"


if __name__ == "__main__":
    print(*{"packages": packages(), "daemons": DAEMONS}[sys.argv[1]])
