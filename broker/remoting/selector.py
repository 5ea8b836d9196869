"""The selector: the parts that all connections of one event loop share, made and connected here.

batch             which reads are served together, and the work at their end        read_batch.py
registry          the open connections and their limits                            connection_registry.py
read_scheduler    how much is read from a connection before the others              read_scheduling.py
pending_writes    the output of all connections                                     pending_writes.py
busy_polling      polls for the next event before the loop sleeps                   busy_polling.py
"""

from collections.abc import Callable
from time import monotonic

import msgspec

from skylarkmq.broker.remoting.busy_polling import BusyPolling, effective_limit_us
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.connection_registry import ConnectionRegistry
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.pending_writes import PendingWrites
from skylarkmq.broker.remoting.read_batch import ReadBatch
from skylarkmq.broker.remoting.read_scheduling import ReadScheduler


class RemotingStatistics(msgspec.Struct, frozen=True):
    """Figures of the connections; counters are totals since the start."""

    connections: int
    accepted: int
    refused: int
    closed_idle: int
    closed_unread: int
    protocol_errors: int
    paused: int
    held: int
    backlog_bytes: int
    received_bytes: int
    sent_bytes: int


class Selector:
    """The parts that all connections of one event loop share. `may_open`: see `ConnectionRegistry`."""

    def __init__(
        self, dispatcher: Dispatcher, config: RemotingConfig, may_open: Callable[[Connection], bool] | None = None
    ) -> None:
        self.pending_writes = PendingWrites(config)
        self.registry = ConnectionRegistry(config, self.pending_writes, may_open)
        self.read_scheduler = ReadScheduler(self.registry.is_memory_short, monotonic)
        self.batch = ReadBatch(dispatcher, self.pending_writes, self.read_scheduler)
        self.busy_polling = BusyPolling(effective_limit_us(config.busy_poll_us), self.read_scheduler)

    def __repr__(self) -> str:
        return f"<Selector {len(self.registry.connections)} connections>"

    def new_connection(self) -> Connection:
        """Return a connection that is not open yet: the protocol of a new transport."""
        return Connection(self.batch, self.registry, self.busy_polling)

    def configure(self, config: RemotingConfig) -> None:
        """Use other limits on peers from now on; new connections also use the new setting for sendfile."""
        self.pending_writes.config = config
        self.registry.configure(config)

    def statistics(self) -> RemotingStatistics:
        """Return the current figures."""
        registry, writes = self.registry, self.pending_writes
        return RemotingStatistics(
            connections=len(registry.connections),
            accepted=registry.accepted,
            refused=registry.refused,
            closed_idle=registry.closed_idle,
            closed_unread=registry.closed_unread,
            protocol_errors=registry.protocol_errors,
            paused=sum(connection.paused and not connection.is_held for connection in registry.connections),
            held=sum(connection.is_held for connection in registry.connections),
            backlog_bytes=writes.backlog_bytes,
            received_bytes=self.read_scheduler.received_bytes,
            sent_bytes=writes.sent_bytes,
        )
