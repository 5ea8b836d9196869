"""How the processors of the sections are registered with a dispatcher: by request code, each with its pool."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher, Processor
from skylarkmq.protocol.codes import RequestCode

Pools = Mapping[str, Pool]
"""Pools by name."""


OWN_POOLS: Final = {
    RequestCode.LITE_PULL_MESSAGE: "lite_pull",
    RequestCode.HEART_BEAT: "heartbeat",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "admin",
}
"""Requests with another pool than the other requests of their processor."""


class Serves(Protocol):
    """A processor."""

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that it serves."""


def register(dispatcher: Dispatcher, pools: Pools, processors: Iterable[tuple[str, Serves]]) -> None:
    """Register processors, each with the name of the pool that admits its requests."""
    for name, processor in processors:
        for code, handler in processor.handlers().items():
            dispatcher.register([code], handler, pools[OWN_POOLS.get(code, name)])
