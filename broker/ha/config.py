"""Settings of replication: RocketMQ's names in snake case, and RocketMQ's defaults."""

from enum import Enum
from typing import Final

import msgspec

from skylarkmq.broker.base.address_ranges import Network
from skylarkmq.broker.ha.peers import Peer

MIN_SECRET_BYTES: Final = 16


class BrokerRole(Enum):
    """The part of a broker in its group. It is decided at the start; another role needs a restart."""

    ASYNC_MASTER = "ASYNC_MASTER"  # does not wait for slaves
    SYNC_MASTER = "SYNC_MASTER"  # acknowledges a message once slaves have reported it
    SLAVE = "SLAVE"  # copies the log of a master, and accepts no messages


class ReplicationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a group of brokers with one name replicates its log. Intervals in ms, sizes in bytes."""

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER  # a SLAVE also needs a brokerId above 0
    advertised_host: str = ""  # the address that name servers give to slaves; default: brokerIP1
    ha_listen_port: int = 0  # where slaves connect; 0: listenPort + 1, opened only if other settings ask for slaves
    ha_allowed_networks: tuple[Network, ...] = ()  # networks of slaves; default: as adminAllowedNetworks
    ha_max_connections: int = 16  # maximum number of slaves that are connected at the same time
    ha_master_address: str | None = None  # a slave copies from here; default: the master that is registered
    ha_send_heartbeat_interval: int = 5_000  # a connection without other data gets a heartbeat after this time
    ha_housekeeping_interval: int = 20_000  # a slave that has reported nothing for this time is disconnected
    ha_transfer_batch_size: int = 32 << 10  # largest piece of the log that is sent at a time
    ha_slave_fallbehind_max: int = 256 << 20  # SYNC_MASTER: sends do not wait for slaves that lack more
    ha_max_gap_not_in_sync: int = 256 << 20  # a slave that lacks more is not in sync in `mqadmin haStatus`
    slave_timeout: int = 3_000  # SYNC_MASTER: sends wait this long for slaves, then get FLUSH_SLAVE_TIMEOUT
    in_sync_replicas: int = 1  # SYNC_MASTER: copies that a send waits for, the master's included; at least one slave's
    min_in_sync_replicas: int = 1  # copies that the replication link always keeps; without effect on RocketMQ's slaves
    total_replicas: int = 1  # brokers of the group; above 1 the port for slaves is opened
    ha_flow_control_enable: bool = False  # whether maxHaTransferByteInSecond limits the rate
    max_ha_transfer_byte_in_second: int = 100 << 20  # maximum bytes per second that each slave gets

    ha_peers: tuple[Peer, ...] = ()  # the nodes of the replication link (ours); the first one leads
    ha_node_id: str = ""  # the name of this node in haPeers (ours)
    ha_cluster_secret: str | None = None  # the group's secret, which nodes prove to have when they link (ours)
    ha_catch_up_bytes_per_second: int = 256 << 20  # rate of catch-up from files, for all followers together (ours)

    @property
    def is_linked(self) -> bool:
        """Whether this broker is a node of a replication link."""
        return bool(self.ha_peers)

    @property
    def leads(self) -> bool:
        """Whether this node leads its replication link."""
        return self.is_linked and self.ha_peers[0].name == self.ha_node_id

    @property
    def serves_slaves(self) -> bool:
        """Whether the port for slaves is opened."""
        if self.is_linked:
            return self.leads
        if self.broker_role is BrokerRole.SLAVE:
            return False
        return self.broker_role is BrokerRole.SYNC_MASTER or self.ha_listen_port > 0 or self.total_replicas > 1
