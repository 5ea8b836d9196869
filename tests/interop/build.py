"""Build all official clients, brokers and tools. Otherwise the first tests that need one build it, and others wait.

python -m tests.interop.build
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.interop.brokers import APACHE_VERSIONS, class_archive
from tests.interop.cases import CLIENTS
from tests.interop.go_commands import MODULES, go_command
from tests.interop.toolchain import apache_broker, mqadmin, promtool


def builds() -> Iterator[Callable[[], object]]:
    """Yield a function for each product, which builds it unless it is there."""
    yield from (partial(client.command, Path()) for client in CLIENTS.values())
    yield from (partial(build, version) for build in (apache_broker, mqadmin) for version in APACHE_VERSIONS)
    yield from (partial(class_archive, version) for version in APACHE_VERSIONS)
    yield from (partial(go_command, name) for name in MODULES)
    yield promtool


def main() -> None:
    """Build everything. What cannot be built here is printed; the tests that need it are skipped."""
    for build in builds():
        try:
            build()
        except pytest.skip.Exception as reason:
            print(reason)


if __name__ == "__main__":
    main()
