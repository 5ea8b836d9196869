"""The parts of a broker that replicate its log, by its role.

A master with the port for slaves (`ReplicationConfig.serves_slaves`) has a `ClassicMaster` behind a `HaServer`. A node
of a replication link (`haPeers`) has a `LinkMember`, and as the leader a `HaServer` for it. Without these the store is
not replicated, and nothing here runs.
"""

from collections.abc import Callable
from typing import NamedTuple

from skylarkmq.broker.base.clocks import wall_ms
from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.ha.classic.master import ClassicMaster
from skylarkmq.broker.ha.classic.slave import ClassicSlave, SlaveConfig
from skylarkmq.broker.ha.link.member import LinkMember
from skylarkmq.broker.ha.port.server import HaServer
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.replica.replica_log import ReplicaLog


class MasterParts(NamedTuple):
    """The parts of a master with slaves."""

    master: ClassicMaster
    server: HaServer


class LinkParts(NamedTuple):
    """The parts of a node of a replication link. `server`: of the leader."""

    member: LinkMember
    server: HaServer | None


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
        *(replication, config.store, config.broker.broker_name, store, ended, wall_ms),
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
    store.on_log_growth(master.grown, None)
    if master.copies is not None:
        store.replicate(master.copies)
    return MasterParts(master, HaServer(replication, master, refused=refused))
