"""Scenarios that run beside each other: clients mostly wait, so a module's clients may as well wait together.

A scenario is a function of a client's name that ends when its clients have done what the test is about. All that this
session has chosen of a module are started at once, each in a thread with drivers of its own; each test waits for its
own, and fails by its own, with what its stage has seen and the end of every log.
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
from tests.interop.drivers import Stage

End = TypeVar("End")
Scenario = Callable[[str, BrokerUnderTest, Stage], End]
"""Plays a client's part, by a connection to the broker and on a stage of its own."""

AT_ONCE: Final = 4


class Scenarios(Generic[End]):
    """Scenarios under way, by name."""

    def __init__(self, started: dict[str, "Future[End]"]) -> None:
        self._started = started

    def __repr__(self) -> str:
        return f"<Scenarios {self._started}>"

    def end_of(self, name: str) -> End:
        """What a scenario returned, once it has ended; what it raised, if it failed or is to be skipped."""
        return self._started[name].result()


@contextmanager
def beside(
    scenario: Scenario[End], clients: Iterable[str], broker: BrokerUnderTest, homes: Path
) -> Iterator[Scenarios[End]]:
    """Play a scenario with clients, AT_ONCE of them; on the way out, those that nobody waited for are waited for."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        play = partial(_play, scenario, broker, homes)
        yield Scenarios({client: threads.submit(play, client) for client in clients})


def _play(scenario: Scenario[End], broker: BrokerUnderTest, homes: Path, client: str) -> End:
    home = homes / client
    home.mkdir()
    CLIENTS[client].command(home)  # built, or skipped, before the clock runs
    with closing(broker.another()) as own:
        stage = Stage(home, own.log)
        try:
            return scenario(client, own, stage)
        except AssertionError as error:
            error.add_note(stage.summary())
            raise
        finally:
            stage.stop()


def chosen_of(request: pytest.FixtureRequest, test: str) -> list[str]:
    """The clients with which a test of the asking module runs in this session."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    ours = [item for item in items if item.module is request.module and item.originalname == test]
    return list(dict.fromkeys(str(item.callspec.params["client"]) for item in ours))
