"""The state of replication, for operators: the metrics, GET_BROKER_HA_STATUS (907) and `/readyz` read it.

The part that replicates (a classic master or slave, or the link) is a `Replicates`, and makes a `ReplicationStatus` on
request. A node without replication has no such part. Offsets are bytes of the commit log.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo

COMMIT_BOUNDS_S: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
"""Bounds of `ReplicationStatus.commit_s`."""


class Role(StrEnum):
    """Whether the node leads its group."""

    LEADER = "leader"
    FOLLOWER = "follower"


class CopyState(StrEnum):
    """A copy, as its leader sees it."""

    IN_SYNC = "in sync"
    BEHIND = "behind"
    DISCONNECTED = "disconnected"


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One copy, as its leader sees it.

    `acked` is the end of what it acknowledged: synced bytes over the link, written ones in classic replication. `sent`
    is the next offset that the leader sends. `lag_ms` is how long it has lacked bytes of the leader's log; 0: it has
    all.
    """

    name: str  # its node in the link; the host of a classic slave
    address: str  # host:port of its connection, "" without one
    state: CopyState
    acked: int
    lag_bytes: int
    lag_ms: int
    sent: int = 0
    bytes_per_second: int = 0


class LeaderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The leader, as a follower sees it. Times are Unix ms, 0: never."""

    address: str | None  # host:port of its log; None: unknown
    is_connected: bool
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_per_second: int = 0
    flushed: int = 0  # the end of the leader's log on its disk, as the follower last received it


class ReplicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one node. In classic replication `epoch` is 0.

    `committed` is the end of what enough copies have. `in_sync` is the number of stores that count as copies, this one
    included, and `min_in_sync` the number that a send needs; both are 0 on a follower, which does not know them.
    `blocked` is why sends are refused, or why a slave copies nothing until its restart; "" otherwise. `refused` counts
    refused connections and frames by reason.
    `commit_s` has the seconds from the write of a batch until enough copies had it; None if sends do not wait.
    """

    role: Role
    end: int
    committed: int
    epoch: int = 0
    min_in_sync: int = 0
    in_sync: int = 0
    members: tuple[MemberStatus, ...] = ()  # of a leader
    leader: LeaderStatus | None = None  # of a follower
    refused: Mapping[str, int] = {}
    blocked: str = ""
    commit_s: Histogram | None = None


class Replicates(Protocol):
    """The part of a daemon that replicates its log."""

    def status(self) -> ReplicationStatus:
        """Return the current state."""


def runtime_info(status: ReplicationStatus) -> HARuntimeInfo:
    """Return the response to GET_BROKER_HA_STATUS (907). Like RocketMQ's it has only the copies with a connection."""
    leader = status.leader
    if leader is not None:
        return HARuntimeInfo(
            ha_client_runtime_info=HAClientInfo(
                master_addr=leader.address,
                max_offset=status.end,
                last_read_timestamp=leader.last_read_ms,
                last_write_timestamp=leader.last_write_ms,
                transferred_byte_in_second=leader.bytes_per_second,
                master_flush_offset=leader.flushed,
            )
        )
    connected = [_connection_info(member) for member in status.members if member.state is not CopyState.DISCONNECTED]
    in_sync = sum(connection.in_sync for connection in connected)
    return HARuntimeInfo(
        master=True, master_commit_log_max_offset=status.end, in_sync_slave_nums=in_sync, ha_connection_info=connected
    )


def _connection_info(member: MemberStatus) -> HAConnectionInfo:
    return HAConnectionInfo(
        addr=member.address,
        slave_ack_offset=member.acked,
        diff=member.lag_bytes,
        in_sync=member.state is CopyState.IN_SYNC,
        transferred_byte_in_second=member.bytes_per_second,
        transfer_from_where=member.sent,
    )
