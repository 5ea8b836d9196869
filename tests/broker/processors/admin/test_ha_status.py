"""GET_BROKER_HA_STATUS (907)."""

from pathlib import Path

from skylarkmq.broker.ha.status import LeaderStatus, ReplicationStatus, Role
from skylarkmq.broker.processors.admin.ha_status import HaStatusProcessor
from skylarkmq.protocol.bodies.ha import HAClientInfo, HARuntimeInfo
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import broker_parts


def reported(path: Path, status: ReplicationStatus | None) -> HARuntimeInfo:
    """Return what a broker with a log of 77 bytes and this state reports."""
    with broker_parts(path) as parts:
        parts.serve(HaStatusProcessor(lambda: status, lambda: 77).handlers())
        response = parts.peer().call(RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS))
        assert response.code == 0
        return HARuntimeInfo.decode(response.body)


async def test_a_broker_without_replication_reports_a_master_without_slaves(tmp_path: Path) -> None:
    """With the end of its log."""
    assert reported(tmp_path, None) == HARuntimeInfo(master=True, master_commit_log_max_offset=77)


async def test_the_state_of_replication_is_reported(tmp_path: Path) -> None:
    """Here of a follower."""
    leader = LeaderStatus(address="m:10912", is_connected=True, last_read_ms=5)
    status = ReplicationStatus(role=Role.FOLLOWER, end=60, committed=50, leader=leader)
    client = HAClientInfo(master_addr="m:10912", max_offset=60, last_read_timestamp=5)
    assert reported(tmp_path, status) == HARuntimeInfo(ha_client_runtime_info=client)
