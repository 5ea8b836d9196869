"""The pytest plugin: the fixture `mq_broker`, a real broker for the tests of any project.

    def test_orders(mq_broker):
        with blocking.Producer("shop", namesrv=mq_broker.namesrv) as producer: ...

    @pytest.mark.mq_broker(enablePropertyFilter=True)           settings, by RocketMQ's names
    async def test_filters(mq_broker): ...

`InProcessBroker` is the type of the fixture's value. `running(directory, settings)` is the context manager behind it,
for tests without pytest.

Each test has its own broker, in this process and in a thread of its own, with the store below `tmp_path`. pytest
imports this module at every start, so the broker is imported only when a test uses the fixture.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skylarkmq.commands import MissingExtra, load

if TYPE_CHECKING:
    from skylarkmq.broker.app.in_process import InProcessBroker, running

__all__ = ["InProcessBroker", "mq_broker", "running"]

MARKER = "mq_broker"
OF_THE_BROKER = frozenset({"InProcessBroker", "running"})


def __getattr__(name: str) -> Any:
    if name in OF_THE_BROKER:
        return load("skylarkmq.broker.app.in_process", name, "broker")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{MARKER}(**settings): settings of the broker of the fixture mq_broker")


@pytest.fixture
def mq_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return a running broker with its name server (`InProcessBroker`): `namesrv`, `address`, `store`."""
    marker = request.node.get_closest_marker(MARKER)
    settings = {} if marker is None else marker.kwargs
    try:
        running = load("skylarkmq.broker.app.in_process", "running", "broker")
    except MissingExtra as error:
        pytest.fail(str(error), pytrace=False)
    with running(tmp_path / "mq-broker", settings) as broker:
        yield broker
