"""The state of replication as GET_BROKER_HA_STATUS (907) has it."""

from skylarkmq.broker.ha.status import CopyState, LeaderStatus, MemberStatus, ReplicationStatus, Role, runtime_info
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo


def member(name: str, state: CopyState, acked: int) -> MemberStatus:
    return MemberStatus(
        name=name,
        address=f"{name}:40000",
        state=state,
        acked=acked,
        lag_bytes=1_000 - acked,
        lag_ms=70,
        sent=acked + 5,
        bytes_per_second=9,
    )


def test_a_leader_lists_its_connected_copies() -> None:
    """With offsets, differences and speeds; the leader itself is not counted as in sync."""
    members = (
        member("a", CopyState.IN_SYNC, 1_000),
        member("b", CopyState.BEHIND, 600),
        member("c", CopyState.DISCONNECTED, 100),
    )
    status = ReplicationStatus(role=Role.LEADER, end=1_000, committed=1_000, in_sync=2, min_in_sync=2, members=members)
    assert runtime_info(status) == HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=1_000,
        in_sync_slave_nums=1,
        ha_connection_info=[
            HAConnectionInfo("a:40000", 1_000, 0, True, 9, 1_005),
            HAConnectionInfo("b:40000", 600, 400, False, 9, 605),
        ],
    )


def test_a_follower_has_its_connection() -> None:
    """Address of the leader, the end of the own log, times and speed."""
    leader = LeaderStatus(
        address="m:10912", is_connected=True, last_read_ms=7, last_write_ms=8, bytes_per_second=9, flushed=400
    )
    status = ReplicationStatus(role=Role.FOLLOWER, end=500, committed=500, leader=leader)
    client = HAClientInfo("m:10912", 9, 500, 7, 8, 400)
    assert runtime_info(status) == HARuntimeInfo(ha_client_runtime_info=client)
