"""A classic slave of our own master: processes, raw frames. The copy is equal, refuses sends, and takes over."""

import json
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.record import decode
from tests.ha.group_daemons import GroupDaemons, wait
from tests.ha.linked_group import SEND
from tests.harness.daemon import Daemon
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient, RawResponse

pytestmark = pytest.mark.daemon

GROUP: Final = "G"
COMMIT: Final = {"consumerGroup": GROUP, "topic": "T", "queueId": 0, "commitOffset": 3}
PULL: Final = {
    "consumerGroup": GROUP, "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0,
    "sysFlag": int(PullSysFlag.SUBSCRIPTION), "subscription": "*", "subVersion": 0, "suspendTimeoutMillis": 0,
}  # fmt: skip


class Pair(GroupDaemons):
    """A master with its own name server, and one slave; each keeps its ports over restarts."""

    def __init__(self, directory: Path, **settings: object) -> None:
        super().__init__(directory, {"brokerName": "pair"} | settings)
        names = ("listenPort", "haListenPort", "embeddedNamesrvPort", "metricsPromExporterPort")
        self.master_ports = dict(zip(names, free_ports(4), strict=True))
        self.slave_ports = {"listenPort": free_ports(1)[0]}

    def start_master(self, **settings: object) -> Daemon:
        return self.run("master", self.master_ports | {"brokerRole": "SYNC_MASTER"} | settings)

    def start_slave(self, **settings: object) -> Daemon:
        namesrv = f"{LOOPBACK}:{self.master_ports['embeddedNamesrvPort']}"
        own = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": namesrv, "slaveReadEnable": "true"}
        return self.run("slave", self.slave_ports | own | settings)

    def wait_equal(self) -> None:
        wait(lambda: self.log("master") == self.log("slave"))


def call(port: int, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> RawResponse:
    with RawClient(LOOPBACK, port, timeout=WAIT_LIMIT_S) as client:
        return client.call(code, ext or {}, body)


def send(port: int, count: int, body: bytes = b"x" * 10_000) -> list[int]:
    with RawClient(LOOPBACK, port, timeout=WAIT_LIMIT_S) as client:
        return [client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"e": 0}, body).code for _ in range(count)]


def committed(port: int) -> int | None:
    response = call(port, RequestCode.QUERY_CONSUMER_OFFSET, COMMIT)
    return int(response.ext["offset"]) if response.code == 0 else None


def test_a_slave_copies_everything_and_takes_over(tmp_path: Path) -> None:
    """Segments from before it existed, messages while both are killed, offsets; then it is the master."""
    with Pair(tmp_path) as pair:
        master_port, slave_port = pair.master_ports["listenPort"], pair.slave_ports["listenPort"]
        pair.start_master()
        assert set(send(master_port, 150)) == {ResponseCode.SLAVE_NOT_AVAILABLE}
        call(
            master_port, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps({"groupName": GROUP}).encode()
        )
        assert call(master_port, RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT).code == 0
        pair.start_slave()
        pair.wait_equal()
        wait(lambda: send(master_port, 1) == [ResponseCode.SUCCESS])
        pair.kill("slave")
        send(master_port, 20)
        slave = pair.start_slave()
        pair.wait_equal()
        pair.kill("master")
        pair.start_master()
        wait(lambda: send(master_port, 1) == [ResponseCode.SUCCESS])
        pair.wait_equal()
        wait(lambda: committed(slave_port) == COMMIT["commitOffset"])
        check_responses(slave_port)
        pair.kill("master")
        assert slave.stop(signal.SIGTERM) == 0
        pair.kill("slave")
        pair.start_slave(brokerRole="ASYNC_MASTER", brokerId=0, namesrvAddr="")
        assert send(slave_port, 1) == [ResponseCode.SUCCESS]
        pulled = call(slave_port, RequestCode.PULL_MESSAGE, PULL | {"queueOffset": 170})
        assert [message.queue_offset for message in decode(pulled.body)][:2] == [170, 171]
        assert committed(slave_port) == COMMIT["commitOffset"]


def check_responses(port: int) -> None:
    """Check the responses of a slave with slaveReadEnable whose master lives."""
    assert send(port, 1) == [ResponseCode.SERVICE_NOT_AVAILABLE]
    pulled = call(port, RequestCode.PULL_MESSAGE, PULL)
    assert (pulled.code, pulled.ext["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, "0")
    assert call(port, RequestCode.END_TRANSACTION).code == ResponseCode.SLAVE_NOT_AVAILABLE
    at_end = call(port, RequestCode.PULL_MESSAGE, PULL | {"queueOffset": 1_000_000})
    assert (at_end.code, at_end.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "1000000")
