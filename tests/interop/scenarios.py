"""Scenarios that run concurrently. Clients mostly wait, so the clients of a module's tests wait at the same time.

A scenario is a function that plays one client's part and returns when the client has done what the test is about. All
scenarios of a module that this session selected start at once, each in a thread with separate drivers. Each test waits
for the result of its scenario. A failure contains the events of that scenario and the end of every log.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

import pytest

from tests.interop.brokers import BrokerUnderTest
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup

Result = TypeVar("Result")
Scenario = Callable[[str, BrokerUnderTest, DriverGroup], Result]
"""Plays the part of a client, with its own connections to the broker and its own drivers."""

MAX_CONCURRENT: Final = 4


class Scenarios(Generic[Result]):
    """The running scenarios, by the name of their client."""

    def __init__(self, started: dict[str, "Future[Result]"]) -> None:
        self._started = started

    def __repr__(self) -> str:
        return f"<Scenarios {self._started}>"

    def result_of(self, name: str) -> Result:
        """Wait for a scenario to end and return its result. Raises its error if it failed or is skipped."""
        return self._started[name].result()


@contextmanager
def run_scenarios(
    scenario: Scenario[Result], clients: Iterable[str], broker: BrokerUnderTest, homes: Path
) -> Iterator[Scenarios[Result]]:
    """Run a scenario for each client, at most MAX_CONCURRENT at a time. On exit, wait for all of them."""
    with ThreadPoolExecutor(MAX_CONCURRENT) as threads:
        play = partial(_play, scenario, broker, homes)
        yield Scenarios({client: threads.submit(play, client) for client in clients})


def _play(scenario: Scenario[Result], broker: BrokerUnderTest, homes: Path, client: str) -> Result:
    home = homes / client
    home.mkdir()
    CLIENTS[client].command(home)  # build the driver, or skip, before any deadline starts
    with closing(broker.with_own_connections()) as own_broker:
        drivers = DriverGroup(home, own_broker.log)
        try:
            return scenario(client, own_broker, drivers)
        except AssertionError as error:
            error.add_note(drivers.summary())
            raise
        finally:
            drivers.stop()


def selected_clients(request: pytest.FixtureRequest, test: str) -> list[str]:
    """Return the clients with which a test of the requesting module runs in this session."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    selected = [item for item in items if item.module is request.module and item.originalname == test]
    return list(dict.fromkeys(str(item.callspec.params["client"]) for item in selected))
