"""Messages of xdist's workers to the main process: one for each test.

A worker has six events in a test. xdist serializes each of them value by value in Python, and each wakes two threads of
the main process; with tests of a millisecond this costs as much CPU as the tests. Here a worker pickles the events of a
test together, and sends them when the test is complete.
"""

import pickle
from collections.abc import Callable
from typing import Any, Final

import pytest

EVENTS: Final = "events"
OF_A_TEST: Final = frozenset({"logstart", "testreport", "logfinish"})

Event = tuple[str, dict[str, Any]]


class EventChannel:
    """The channel of a worker. It keeps the events of a test until another event follows."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._events: list[Event] = []
        self.setcallback = channel.setcallback

    def send(self, event: Event) -> None:
        self._events.append(event)
        if event[0] not in OF_A_TEST:
            self._channel.send((EVENTS, pickle.dumps(self._events)))
            self._events.clear()


def send_events_together(config: pytest.Config) -> None:
    """In a worker, replace the channel of xdist's plugin."""
    worker: Any = next(plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "sendevent"))
    worker.channel = EventChannel(worker.channel)


def receive_events_together(node: Any) -> None:
    """In the main process, replace the callback for messages of a worker; `node` is xdist's object for the worker."""
    process: Callable[[Any], None] = node.process_from_remote

    def process_all(message: Any) -> None:
        if isinstance(message, tuple) and message[0] == EVENTS:
            for event in pickle.loads(message[1]):
                process(event)
        else:
            process(message)

    node.process_from_remote = process_all
