"""The state of replication: the bytes of RocketMQ 5.3.3."""

import pytest

from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from tests.harness.ha_status import RecordedState, recorded_states


@pytest.mark.parametrize("recorded", recorded_states(), ids=lambda recorded: recorded.case)
def test_states_are_written_as_by_rocketmq(recorded: RecordedState) -> None:
    """Of masters and slaves: the same members, in the same order."""
    body = recorded.body.encode()
    assert HARuntimeInfo.decode(body).encode() == body


def test_states_are_read() -> None:
    """A slave has the address of its master, a master the offsets of its slaves."""
    master, slave, behind = (HARuntimeInfo.decode(recorded.body.encode()) for recorded in recorded_states())
    assert (master.master, slave.master) == (True, False)
    assert slave.ha_client_runtime_info.master_addr
    assert slave.ha_client_runtime_info.max_offset == master.master_commit_log_max_offset
    assert [copy.in_sync for copy in behind.ha_connection_info] == [True, False]
