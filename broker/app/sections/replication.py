"""The replication of a broker's log, by its role.

A master with the port for slaves (`ReplicationConfig.serves_slaves`) has a `ClassicMaster` behind a `HaServer`. A node
of a replication link (`haPeers`) has a `LinkMember`, and as the leader a `HaServer` for it. A slave, classic or of a
link, also has a `Following`, which is made once its store is loaded. Without these the store is not replicated, and
nothing here runs.
"""

from collections.abc import Callable
from typing import NamedTuple

from skylarkmq.broker.app.sections.delivery import BackgroundDelivery
from skylarkmq.broker.app.sections.registering import Pools, register
from skylarkmq.broker.app.sections.registration import Registration
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.base.clocks import wall_ms
from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.ha.classic.master import ClassicMaster
from skylarkmq.broker.ha.classic.slave import ClassicSlave, SlaveConfig
from skylarkmq.broker.ha.config import BrokerRole
from skylarkmq.broker.ha.link.member import LinkedLog, LinkMember
from skylarkmq.broker.ha.port.server import HaServer
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.ha.status import Replicates, ReplicationStatus
from skylarkmq.broker.ha.tables.following import CopiedLog, Following
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.ha.tables.tables import SlaveTables
from skylarkmq.broker.processors.admin.ha_status import HaStatusProcessor
from skylarkmq.broker.processors.slave_refusals import SlaveRefusals
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.protocol.command import RemotingCommand


class MasterParts(NamedTuple):
    """The parts of a master with slaves."""

    master: ClassicMaster
    server: HaServer


class LinkParts(NamedTuple):
    """The parts of a node of a replication link. `server`: of the leader."""

    member: LinkMember
    server: HaServer | None


class Replication:
    """The replication of one broker. Parts of another role are None. `ended` is called when the daemon has to end."""

    def __init__(
        self,
        config: DaemonConfig,
        store: MessageStore,
        server_tls: ServerTls,
        client_tls: ReloadingContext | None,
        ended: Callable[[DaemonEnded], None],
    ) -> None:
        self._config = config
        self._store = store
        self.is_slave = config.replication.broker_role is BrokerRole.SLAVE
        self.master = master_parts(config, store)
        self.link = link_parts(config, store, server_tls, client_tls, ended)
        self.following: Following | None = None

    def __repr__(self) -> str:
        return f"<Replication {self._replicates()!r}>"

    def register(
        self, dispatcher: Dispatcher, pools: Pools, refused_send: Callable[[PutStatus], RemotingCommand]
    ) -> None:
        """Register the processors. Those of a slave replace processors that change the store: register them last.

        `refused_send` returns the response to a send that a slave refuses.
        """
        status = HaStatusProcessor(self.status, lambda: self._store.max_physical_offset)
        register(dispatcher, pools, [("admin", status)])
        if self.is_slave:
            register(dispatcher, pools, [("send", SlaveRefusals(refused_send))])

    def follow(self, registration: Registration, tables: Tables, delivery: BackgroundDelivery) -> None:
        """Make the parts of a slave, whose store is loaded. A master has none."""
        config, store, replica = self._config, self._store, self._store.replica
        if replica is None:
            return
        slave_tables = SlaveTables(
            tables.topics,
            tables.groups,
            tables.offsets,
            delivery.delay_offsets,
            delivery.timers,
            store,
            config.store.store_path_root_dir,
        )
        outbound = registration.outbound
        calls = MasterCalls(outbound)
        log: CopiedLog = classic_slave(config, replica, calls) if self.link is None else LinkedLog(self.link.member)
        address = config.replication.ha_master_address
        self.following = Following(
            log, calls, address, lambda: replica.end, slave_tables, outbound, registration.registrar
        )

    def has_master(self) -> bool:
        """Return whether this is a slave and a name server has the address of its live master."""
        return self.following is not None and self.following.has_master

    def status(self) -> ReplicationStatus | None:
        """Return the state of replication; None without it."""
        replicates = self._replicates()
        return None if replicates is None else replicates.status()

    def problem(self) -> str | None:
        """Return why sends are refused, or why a slave copies nothing; None otherwise."""
        status = self.status()
        return status.blocked or None if status is not None else None

    def step(self) -> None:
        """Run what is due, about every 100 ms."""
        if self.master is not None:
            self.master.server.step()
        if self.link is not None:
            self.link.member.step()
            if self.link.server is not None:
                self.link.server.step()

    def _replicates(self) -> Replicates | None:
        if self.following is not None:
            return self.following
        if self.link is not None:
            return self.link.member
        return None if self.master is None else self.master.master


def link_parts(
    config: DaemonConfig,
    store: MessageStore,
    server_tls: ServerTls,
    client_tls: ReloadingContext | None,
    ended: Callable[[DaemonEnded], None],
) -> LinkParts | None:
    """Return the parts of a node of a link, connected to its store before it is loaded; None without haPeers."""
    replication = config.replication
    if not replication.is_linked:
        return None
    member = LinkMember(
        replication,
        config.store,
        config.broker.broker_name,
        store,
        ended,
        wall_ms,
        server_tls=server_tls,
        client_tls=client_tls,
    )
    server = None
    if replication.leads:
        server = HaServer(replication, None, member.links.accept, Refused(counts=member.links.refused))
    return LinkParts(member, server)


def classic_slave(config: DaemonConfig, replica: ReplicaLog, calls: MasterCalls) -> ClassicSlave:
    """Return the part of a classic slave that copies the log."""
    replication = config.replication
    slave_config = SlaveConfig(
        heartbeat_s=replication.ha_send_heartbeat_interval / 1000,
        housekeeping_s=replication.ha_housekeeping_interval / 1000,
        reports_synced=config.store.is_sync_flush,
        segment_bytes=config.store.mapped_file_size_commit_log,
    )
    return ClassicSlave(slave_config, replica, calls, wall_ms)


def master_parts(config: DaemonConfig, store: MessageStore) -> MasterParts | None:
    """Return the parts of a master, connected to its store before the first put; None if no slaves are served."""
    replication = config.replication
    if not replication.serves_slaves or replication.is_linked:
        return None
    refused = Refused()
    master = ClassicMaster(replication, store, config.store.mapped_file_size_commit_log, refused)
    store.flush.on_growth(master.grown, None)
    if master.copies is not None:
        store.flush.replicate(master.copies)
    return MasterParts(master, HaServer(replication, master, refused=refused))
