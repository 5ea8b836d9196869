"""A broker that follows a master: finds it by its registration, and copies its log and its tables.

The name server's response to each registration has the addresses of the master (docs/reference/wire.md, "Name server"):
one for requests, which the tables come from, and one of its log. `haMasterAddress` replaces only the second one.
Without a live master no tables are copied, but its log is, from the last address. While that works, the broker
registers again until a master is known, because the next periodic registration may be half a minute away.

The log is copied by classic replication (`ClassicSlave`), or over a replication link, which finds its leader itself.
"""

from collections.abc import Callable
from typing import Protocol

from skylarkmq.broker.ha.status import ReplicationStatus
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.ha.tables.metadata import MetadataSync
from skylarkmq.broker.ha.tables.tables import SlaveTables
from skylarkmq.broker.namesrv.registration import Registrar
from skylarkmq.broker.remoting.outbound import Outbound


class CopiedLog(Protocol):
    """Copies the log of a master."""

    @property
    def is_connected(self) -> bool:
        """Whether a connection to the master's log is open."""

    def status(self) -> ReplicationStatus:
        """Return the current state, for operators."""

    def copy_from(self, address: str | None) -> None:
        """Copy from this HA port (host:port) from now on. None: no master is known, and the last one is kept."""

    def start(self) -> None:
        """Begin to copy."""

    async def stop(self) -> None:
        """Copy nothing more."""


class Following:
    """The parts of one slave. `log_address`: haMasterAddress; `log_end` returns the end of the own log."""

    def __init__(
        self,
        log: CopiedLog,
        calls: MasterCalls,
        log_address: str | None,
        log_end: Callable[[], int],
        tables: SlaveTables,
        outbound: Outbound,
        registrar: Registrar,
    ) -> None:
        self._log_address = log_address
        self._registrar = registrar
        self._calls = calls
        self.log = log
        self.tables = MetadataSync(calls, tables, log_end, self._seek_master)
        outbound.on_close(self.tables.connection_lost)
        registrar.on_registered = self._take_addresses

    def __repr__(self) -> str:
        return f"<Following {self.log!r} {self.tables!r}>"

    @property
    def has_master(self) -> bool:
        """Whether a name server has the address of a live master."""
        return self._calls.address is not None

    def status(self) -> ReplicationStatus:
        """Return the current state, for operators."""
        return self.log.status()

    def start(self) -> None:
        """Begin to copy, as soon as there is a master."""
        self._take_addresses()
        self.log.start()
        self.tables.start()

    async def stop(self) -> None:
        """Copy nothing more."""
        await self.tables.stop()
        await self.log.stop()

    def _seek_master(self) -> None:
        """Ask the name servers again, if there must be a master: its HA port has accepted a connection."""
        if self.log.is_connected:
            self._registrar.changed()

    def _take_addresses(self) -> None:
        master = self._registrar.master
        if master.master_addr != self._calls.address:
            self._calls.address = master.master_addr
            self.tables.master_changed()
        self.log.copy_from(self._log_address or master.ha_server_addr)
