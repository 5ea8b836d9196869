"""Official clients of RocketMQ, unchanged from their registries, against a running broker.

Each client sends a thousand messages of every form (plan.py) and reads them in a group of two members. The tests
compare every byte. Then one member leaves, and the tests measure the time until the other member has its queues. The
parts: `toolchain` fetches and builds the clients, `clients/` contains a small driver program for each, `drivers` runs
the drivers and collects their events, `brokers` runs the broker, `cases` contains the tables of clients and of their
combinations.

The same tests run against RocketMQ's own broker with --broker-under-test=apache-4.9.7; this shows the responses that
RocketMQ itself gives. Measurements are printed in the terminal summary under "interop".

With --access=all every client runs with access control of both generations and every kind of wrong credentials
(test_access.py); otherwise a sample of these does.

With --compatibility=docs/reference/compatibility.md the run writes that page from the results of its tests
(compatibility.py).
"""

from pathlib import Path

import pytest

from tests.interop.brokers import COMMANDS
from tests.interop.compatibility import CLIENT, FACTS, Run, document
from tests.interop.matrix import pairs_of
from tests.interop.toolchain import built_in_seconds

MEASURED = pytest.StashKey[list[str]]()
MARKER = "covers(feature, *clients): the feature and the official clients that a test covers (tests/interop/matrix.py)"

run = Run()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker-under-test", choices=sorted(COMMANDS), default="skylark", help="for tests/interop")
    parser.addoption("--access", choices=("sample", "all"), default="sample", help="for tests/interop/test_access.py")
    parser.addoption("--compatibility", type=Path, metavar="PAGE", help="write the results of the run to PAGE")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Attach the facts of a test to its reports, so that they also reach the main process of xdist."""
    facts = sorted((CLIENT, *pair) for pair in pairs_of(item.iter_markers("covers")))
    if facts:
        item.user_properties.append((FACTS, facts))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    run.note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    page: Path | None = session.config.getoption("--compatibility", default=None)
    if page is not None and not hasattr(session.config, "workerinput"):
        page.write_text(document(run.verdicts()))


@pytest.fixture(scope="session")
def broker_kind(pytestconfig: pytest.Config) -> str:
    # The option does not exist in a run whose arguments do not name this directory.
    return str(pytestconfig.getoption("--broker-under-test", default="skylark"))


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> list[str]:
    """Return the lines for the terminal summary."""
    return pytestconfig.stash.setdefault(MEASURED, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = [f"{name}: fetched and built in {seconds:.1f} s" for name, seconds in built_in_seconds.items()]
    measured: list[str] = config.stash.setdefault(MEASURED, [])
    lines += measured
    if lines:
        terminalreporter.section("interop")
    for line in lines:
        terminalreporter.write_line(line)
