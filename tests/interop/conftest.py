"""Official clients of RocketMQ, unchanged from their registries, against a running broker.

Each client sends a thousand messages of every shape (plan.py) and reads them in a group of two members; every byte is
compared, and then one member leaves and the time is taken until the other has its queues. The parts: `toolchain`
fetches and builds the clients, `clients/` holds one small driver program for each, `drivers` runs those and listens,
`brokers` runs the broker, `cases` holds the tables of clients and of who meets whom.

To see what RocketMQ itself would answer, the same tests run against its own broker: --broker-under-test=apache-4.9.7.
What was measured stands in the terminal summary under "interop".
"""

import pytest

from tests.interop.brokers import COMMANDS
from tests.interop.toolchain import built_in_seconds

MEASURED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker-under-test", choices=sorted(COMMANDS), default="skylark", help="for tests/interop")


@pytest.fixture(scope="session")
def broker_kind(pytestconfig: pytest.Config) -> str:
    # A run that did not name this directory has no such option.
    return str(pytestconfig.getoption("--broker-under-test", default="skylark"))


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> list[str]:
    """Lines for the terminal summary."""
    return pytestconfig.stash.setdefault(MEASURED, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = [f"{name}: fetched and built in {seconds:.1f} s" for name, seconds in built_in_seconds.items()]
    measured: list[str] = config.stash.setdefault(MEASURED, [])
    lines += measured
    if lines:
        terminalreporter.section("interop")
    for line in lines:
        terminalreporter.write_line(line)
