"""The pytest plugin: the fixture `mq_broker`, a real broker for the tests of any project.

    def test_orders(mq_broker):
        with blocking.Producer("shop", namesrv=mq_broker.namesrv) as producer: ...

    @pytest.mark.mq_broker(enablePropertyFilter=True)           settings, by RocketMQ's names
    async def test_filters(mq_broker): ...

Each test has a broker of its own, in this process and on a thread of its own, with its store below `tmp_path`. pytest
imports this module whenever it starts, so what makes a broker is loaded when the first test asks for one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.commands import MissingExtra, load

MARKER = "mq_broker"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", f"{MARKER}(**settings): what the broker of the fixture mq_broker runs with")


@pytest.fixture
def mq_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A running broker with its name server (`broker.in_process.InProcessBroker`): `namesrv`, `address`, `store`."""
    marker = request.node.get_closest_marker(MARKER)
    settings = {} if marker is None else marker.kwargs
    try:
        running = load("skylarkmq.broker.in_process", "running", "broker")
    except MissingExtra as error:
        pytest.fail(str(error), pytrace=False)
    with running(tmp_path / "mq-broker", settings) as broker:
        yield broker
