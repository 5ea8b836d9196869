"""A scripted cluster without problems: a name server that is also the only broker `b`. Tests change its responses.

cluster.runtime["dispatchBehindBytes"] = str(1 << 30)
assert cluster.findings() == [("warning", "storage", ...)]
"""

import asyncio
import time
from typing import NamedTuple

import msgspec
import pytest

from skylarkmq import Admin
from skylarkmq.clients.mqadmin.doctor.examination import CHECKS, examine
from skylarkmq.clients.mqadmin.doctor.findings import Check, Report
from skylarkmq.clients.mqadmin.doctor.subject import Subject, Wanted
from skylarkmq.protocol.bodies.cluster import ClusterInfo, KVTable, TopicList
from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import Result, RunCommand
from tests.clients.peer import Peer

QUICK = Wanted(sample_s=0.01)


class ScriptedCluster(NamedTuple):
    """`brokers`: addresses by broker id, by name. `routes`: by topic. `runtime`, `settings` and `replication` are
    those of `b`."""

    peer: Peer
    run: RunCommand
    runtime: dict[str, str]
    settings: dict[str, str]
    brokers: dict[str, dict[int, str]]
    routes: dict[str, TopicRouteData]
    replication: HARuntimeInfo

    def doctor(self, *options: str) -> Result:
        return self.run("doctor", "--sample", "0.01", *options)

    def report(self, *options: str) -> Report:
        """Return the report that `--json` prints."""
        return parsed(self.doctor("--json", *options))

    def findings(self, *options: str) -> list[tuple[str, str, str]]:
        """Return severity, check and text of each finding."""
        return [(its.severity.value, its.check, its.what) for its in self.report(*options).findings]


def parsed(result: Result) -> Report:
    assert result.err == ""
    return msgspec.json.decode(result.out, type=Report)


@pytest.fixture
def cluster(scripted: Peer, run_mqadmin: RunCommand) -> ScriptedCluster:
    made = ScriptedCluster(
        scripted,
        run_mqadmin,
        runtime=healthy(),
        settings={"embeddedNamesrvPort": "0", "messageDelayLevel": "1s 5s 2h", "filterServerNums": "0"},
        brokers={"b": {0: scripted.address}},
        routes={"Orders": route(scripted.address)},
        replication=HARuntimeInfo(master=True, master_commit_log_max_offset=1 << 30),
    )

    def route_of(_: object, request: RemotingCommand) -> RemotingCommand:
        known = made.routes.get(request.ext_fields()["topic"])
        if known is None:
            return RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST, "unknown")
        return RemotingCommand.response(body=known.encode())

    def info(*_: object) -> RemotingCommand:
        data = {name: BrokerData("c", name, addresses) for name, addresses in made.brokers.items()}
        return RemotingCommand.response(body=ClusterInfo(data, {"c": list(data)}).encode())

    def runtime_info(*_: object) -> RemotingCommand:
        """Return the state of a broker that started now, unless the test sets another time."""
        now = {"bootTimestamp": str(time.time_ns() // 1_000_000)}
        return RemotingCommand.response(body=KVTable(now | made.runtime).encode())

    def settings(*_: object) -> RemotingCommand:
        return RemotingCommand.response(body="".join(f"{k}={v}\n" for k, v in made.settings.items()).encode())

    scripted.on(RequestCode.HEART_BEAT, None)
    scripted.on(RequestCode.UNREGISTER_CLIENT, None)
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, info)
    scripted.on(RequestCode.GET_BROKER_RUNTIME_INFO, runtime_info)
    scripted.on(RequestCode.GET_BROKER_CONFIG, settings)
    scripted.on(RequestCode.GET_BROKER_HA_STATUS, lambda *_: RemotingCommand.response(body=made.replication.encode()))
    scripted.on(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        lambda *_: RemotingCommand.response(body=TopicList(list(made.routes)).encode()),
    )
    scripted.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_of)
    return made


def healthy() -> dict[str, str]:
    """Return the runtime information of a broker, without the time of its start."""
    return {
        "brokerActive": "true",
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "commitLogDiskRatio": "0.5",
        "dispatchBehindBytes": "0",
        "remainHowManyDataToFlush": "0 B",
        "pageCacheLockTimeMills": "0",
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "timerReadBehind": "0",
    }


def route(address: str, perm: int = 6, read: int = 4, write: int = 4, broker_id: int = 0) -> TopicRouteData:
    rows = [QueueData("b", read_queue_nums=read, write_queue_nums=write, perm=perm)]
    return TopicRouteData(queue_datas=rows, broker_datas=[BrokerData("c", "b", {broker_id: address})])


def examined(namesrv: str, *checks: Check, wanted: Wanted = QUICK, limit_s: float = 30.0) -> Report:
    """Return the report of these checks; by default of all."""

    async def report() -> Report:
        async with Admin(namesrv=namesrv) as admin:
            return await examine(Subject(admin, wanted), lambda _: None, checks or CHECKS, limit_s)

    return asyncio.run(report())
