"""A master over its ports: RocketMQ's codes of SYNC_MASTER, and slaves that lose nothing at a stop."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.harness.classic_slaves import RawSlave
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient

pytestmark = pytest.mark.daemon

SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False,
}  # fmt: skip
NO_WAIT = SEND | {"i": "WAIT\x01false\x02"}


async def sent(daemon: Daemon, body: bytes, header: dict[str, object] = SEND) -> int:
    def call() -> int:
        with RawClient(LOOPBACK, daemon.broker_port) as one:
            return one.call(RequestCode.SEND_MESSAGE_V2, header, body).code

    return await asyncio.to_thread(call)


def log_of(directory: Path, size: int) -> bytes:
    return next(directory.glob("**/commitlog/00000000000000000000")).read_bytes()[:size]


async def test_a_synchronous_master_waits_for_its_slave(tmp_path: Path) -> None:
    """Without a slave a send gets SLAVE_NOT_AVAILABLE (11), with one that does not report FLUSH_SLAVE_TIMEOUT (12),
    with one that does SUCCESS; WAIT=false gets SUCCESS at once. haStatus shows the slave."""
    (port,) = free_ports(1)
    settings = {"brokerRole": "SYNC_MASTER", "haListenPort": port, "slaveTimeout": 300}
    with running(directory=tmp_path, settings=settings) as daemon:
        assert await sent(daemon, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
        async with await RawSlave.connect(port) as slave:
            slave.report()
            await slave.copy(1)
            assert await sent(daemon, b"unanswered") == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert await sent(daemon, b"not waited for", NO_WAIT) == ResponseCode.SUCCESS
            copying = asyncio.ensure_future(slave.copy(1 << 40))
            assert await sent(daemon, b"copied") == ResponseCode.SUCCESS
            with RawClient(LOOPBACK, daemon.broker_port) as one:
                status = json.loads(one.call(RequestCode.GET_BROKER_HA_STATUS, {}).body)
            assert (status["master"], status["inSyncSlaveNums"]) == (True, 1)
            assert status["haConnectionInfo"][0]["addr"] == slave.address
            assert status["haConnectionInfo"][0]["slaveAckOffset"] == status["masterCommitLogMaxOffset"] == slave.end
            copying.cancel()
        assert daemon.stop() == 0, daemon.output
        assert bytes(slave.log) == log_of(tmp_path, slave.end)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_waits_until_the_slaves_have_the_log(tmp_path: Path, end: signal.Signals) -> None:
    """The slave has every byte after the stop, also what the stop itself appends."""
    (port,) = free_ports(1)
    with running(directory=tmp_path, settings={"haListenPort": port}) as daemon:
        async with await RawSlave.connect(port) as slave:
            slave.report()
            for number in range(100):
                assert await sent(daemon, b"%d" % number * 1000) == ResponseCode.SUCCESS
            copying = asyncio.ensure_future(slave.copy(1 << 40))
            assert await asyncio.to_thread(daemon.stop, end) == 0, daemon.output
            with pytest.raises(ConnectionError):
                await copying
        log = log_of(tmp_path, 1 << 20)
        assert bytes(slave.log) == log[: slave.end]
        assert log[slave.end :].count(0) == len(log) - slave.end
        assert slave.end > 100_000


def test_slaves_ask_for_topics_on_the_port_of_the_vip_channel(tmp_path: Path) -> None:
    """RocketMQ's slaves send GET_ALL_TOPIC_CONFIG (21) to listenPort - 2. A broker without slaves does not have it."""
    (port,) = free_ports(1, beside=(-2, 1))
    with running(directory=tmp_path, settings={"listenPort": port, "totalReplicas": 2}) as daemon:
        with RawClient(LOOPBACK, port - 2) as one:
            assert "TBW102" in json.loads(one.call(RequestCode.GET_ALL_TOPIC_CONFIG, {}).body)["topicConfigTable"]
        assert daemon.stop() == 0, daemon.output
    with running(directory=tmp_path, settings={"listenPort": port}), pytest.raises(ConnectionRefusedError):
        RawClient(LOOPBACK, port - 2)
