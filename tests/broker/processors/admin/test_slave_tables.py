"""Tables that slaves of RocketMQ 5 ask for: timers (60, 61), and modes of consumption (402)."""

import json
from pathlib import Path

import pytest

from skylarkmq.broker.delivery.timer.admission import TimerConfig
from skylarkmq.broker.delivery.timer.timers import Timers, TimersConfig
from skylarkmq.broker.processors.admin.slave_tables import SlaveTablesProcessor
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.timers import TimerCheck
from tests.harness.broker_parts import BrokerParts, broker_parts


def asked(parts: BrokerParts, root: Path, code: RequestCode, *, has_timers: bool = True) -> RemotingCommand:
    config = TimersConfig(root=root, admission=TimerConfig(is_enabled=has_timers), slots=1_000)
    timers = Timers(config, parts.store, parts.clock)
    if has_timers:
        timers.load(lambda: None)
        timers.counts.add("T", 2)
    parts.serve(SlaveTablesProcessor(timers).handlers())
    return parts.peer().call(RemotingCommand.request(code))


async def test_the_check_point_has_the_progress_of_the_timers(tmp_path: Path) -> None:
    """56 bytes, as RocketMQ sends them; the master's queue offset is that of the wheel."""
    with broker_parts(tmp_path) as parts:
        response = asked(parts, tmp_path, RequestCode.GET_TIMER_CHECK_POINT)
        assert (response.code, len(response.body)) == (0, 56)
        check = TimerCheck.decode(bytes(response.body))
        assert check.read_ms > 0
        assert check.master_queue_offset == check.queue_offset


async def test_the_metrics_have_the_pending_messages_by_topic(tmp_path: Path) -> None:
    """The content of the file timermetrics, without waiting for it to be saved."""
    with broker_parts(tmp_path) as parts:
        body = json.loads(bytes(asked(parts, tmp_path, RequestCode.GET_TIMER_METRICS).body))
        assert body["timingCount"]["T"]["count"] == 2
        assert body.keys() == {"timingCount", "dataVersion"}


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (RequestCode.GET_TIMER_CHECK_POINT, "The checkpoint is null"),
        (RequestCode.GET_TIMER_METRICS, "The timer message store is null"),
    ],
)
async def test_without_timers_there_is_nothing_to_copy(tmp_path: Path, code: RequestCode, remark: str) -> None:
    """RocketMQ's remarks."""
    with broker_parts(tmp_path) as parts:
        response = asked(parts, tmp_path, code, has_timers=False)
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_no_group_has_a_request_mode(tmp_path: Path) -> None:
    """POP is not part of this version, so the table is empty."""
    with broker_parts(tmp_path) as parts:
        response = asked(parts, tmp_path, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert (response.code, bytes(response.body)) == (0, b'{"messageRequestModeMap":{}}')
