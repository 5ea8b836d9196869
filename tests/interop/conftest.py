"""Official clients of RocketMQ, unchanged from their registries, against a running broker.

Each client sends a thousand messages of every shape (plan.py) and reads them in a group of two members; every byte is
compared, and then one member leaves and the time is taken until the other has its queues. The parts: `toolchain`
fetches and builds the clients, `clients/` holds one small driver program for each, `drivers` runs those and listens,
`brokers` runs the broker, `cases` holds the tables of clients and of who meets whom.

To see what RocketMQ itself would answer, the same tests run against its own broker: --broker-under-test=apache-4.9.7.
What was measured stands in the terminal summary under "interop".

With --compatibility=docs/compatibility.md the run writes that page from what its tests have said (compatibility.py).
"""

from pathlib import Path

import pytest

from tests.interop.brokers import COMMANDS
from tests.interop.compatibility import CLIENT, FACTS, Run, document
from tests.interop.matrix import pairs_of
from tests.interop.toolchain import built_in_seconds

MEASURED = pytest.StashKey[list[str]]()
MARKER = "covers(feature, *clients): what of which official clients a test tries (tests/interop/matrix.py)"

run = Run()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker-under-test", choices=sorted(COMMANDS), default="skylark", help="for tests/interop")
    parser.addoption("--compatibility", type=Path, metavar="PAGE", help="write what the run says of clients to PAGE")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What a test tries goes with its reports, also from a process of xdist to the one that writes."""
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
