"""Commands about brokers."""

import re
import time
from collections.abc import Iterator

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, free_ports
from skylarkmq.clients.sdk.admin.properties import encode_properties
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.ha import MasterFlushOffsetHeader
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer
from tests.harness.ha_status import RecordedState, recorded_states


def test_the_state_of_a_broker_is_printed(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Sorted, with the keys in 32 characters; for a cluster with the address in front."""
    one = mqadmin("brokerStatus", "-b", broker.address)
    assert (one.code, one.err) == (0, "")
    assert "brokerVersionDesc               : V5_3_3" in one.out.splitlines()
    assert one.out.splitlines() == sorted(one.out.splitlines())
    all_of_them = mqadmin("brokerStatus", "-c", "DefaultCluster")
    assert f"{broker.address:24} brokerVersionDesc               : V5_3_3" in all_of_them.out.splitlines()


def test_settings_are_changed_and_printed(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Of one broker, and of those of a cluster; secrets stay hidden."""
    changed = mqadmin("updateBrokerConfig", "-b", broker.address, "-k", "flushIntervalCommitLog", "-v", "700")
    assert changed == (0, f"update broker config success, {broker.address}\n", "")
    one = mqadmin("getBrokerConfig", "-b", broker.address)
    assert one.out.startswith(f"============{broker.address}============\n")
    assert f"{'flushIntervalCommitLog':50}=  700" in one.out.splitlines()
    again = mqadmin("updateBrokerConfig", "-c", "DefaultCluster", "-k=flushIntervalCommitLog", "-v=500", "-a", "x")
    assert again.out == f"update broker config success, {broker.address}\n"
    of_cluster = mqadmin("getBrokerConfig", "-c", "DefaultCluster")
    assert of_cluster.out.startswith(f"============Master: {broker.address}============\n")
    assert f"{'flushIntervalCommitLog':50}=  500" in of_cluster.out.splitlines()


@pytest.mark.parametrize("value", ["8", "-1", "all"])
def test_an_invalid_permission_of_a_broker_is_not_sent(mqadmin: RunCommand, value: str) -> None:
    """A broker would ignore it without an error."""
    result = mqadmin("updateBrokerConfig", "-c", "DefaultCluster", "-k", "brokerPermission", "-v", value)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"mqadmin: brokerPermission is a sum of 4 (read) and 2 (write), not {value}.\n"


def test_a_setting_is_one_line(mqadmin: RunCommand) -> None:
    """A line break would change a second setting."""
    result = mqadmin("updateBrokerConfig", "-c", "DefaultCluster", "-k", "a", "-v", "1\nb=2")
    assert (result.code, result.out) == (1, "")
    assert "a value without line breaks" in result.err


def test_secrets_of_a_broker_are_hidden(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """RocketMQ's brokers send them in the clear; an empty value and a switch stay as they are."""
    settings = {"innerClientAuthenticationCredentials": '{"secretKey":"open-sesame"}', "initAuthenticationUser": ""}
    body = encode_properties(settings | {"tls.server.keyPassword": "open-sesame", "strictSecretFiles": "true"})
    scripted.on(RequestCode.GET_BROKER_CONFIG, lambda *_: RemotingCommand.response(body=body))
    result = run_mqadmin("getBrokerConfig", "-b", scripted.address)
    assert [line.split() for line in result.out.splitlines()[1:-1]] == [
        ["initAuthenticationUser", "="],
        ["innerClientAuthenticationCredentials", "=", "******"],
        ["strictSecretFiles", "=", "true"],
        ["tls.server.keyPassword", "=", "******"],
    ]


def test_messages_are_sent_to_a_broker(mqadmin: RunCommand) -> None:
    """To the topic named like it: a line for each message after the first."""
    result = mqadmin("sendMsgStatus", "-b", "broker-a", "-c", "2", "-s", "20")
    assert result.code == 0
    lines = result.out.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, .*\]", line) for line in lines)


def test_messages_to_an_unknown_broker_are_not_sent(mqadmin: RunCommand) -> None:
    """Exit code 2; RocketMQ's tool creates a topic of that name."""
    result = mqadmin("sendMsgStatus", "-b", "broker-x")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert mqadmin("topicRoute", "-t", "broker-x").code == 2


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
def test_files_are_cleaned_up(mqadmin: RunCommand, broker: InProcessBroker, command: str) -> None:
    """On one broker, those of a cluster, or all; an unknown cluster is an error."""
    assert mqadmin(command) == (0, "success", "")
    assert mqadmin(command, "-b", broker.address) == (0, "success", "")
    assert mqadmin(command, "-c", "DefaultCluster") == (0, "success", "")
    assert mqadmin(command, "-c", "Nowhere").code == 2


def test_offsets_of_all_groups_are_printed(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """Without queues below the level, and without those of which nothing was consumed."""
    row = OffsetWrapper(broker_offset=10, consumer_offset=7, last_timestamp=1_700_000_000_000)
    unread = OffsetWrapper(broker_offset=5)
    even = OffsetWrapper(broker_offset=4, consumer_offset=4, last_timestamp=1_700_000_000_000)
    queues = {MessageQueue("T" * 70, "b" * 40, number): its for number, its in enumerate((row, unread, even))}
    listed = ConsumeStatsList([{"billing": [ConsumeStats(queues)]}], scripted.address)
    scripted.on(RequestCode.GET_BROKER_CONSUME_STATS, lambda *_: RemotingCommand.response(body=listed.encode()))
    result = run_mqadmin("brokerConsumeStats", "-b", scripted.address, "-l", "1")
    assert result.code == 0
    (cells,) = result.rows
    assert cells[:7] == ["T" * 64, "billing", "b" * 32, "0", "10", "7", "3"]
    assert result.out.endswith("\n\nDiff Total: 8\n")


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("recorded", recorded_states(), ids=lambda recorded: recorded.case)
def test_the_state_of_replication_is_printed_as_by_rocketmq(
    run_mqadmin: RunCommand, scripted: Peer, recorded: RecordedState
) -> None:
    """Bodies of RocketMQ's brokers are printed as its own tool printed them."""
    body = recorded.body.encode()
    scripted.on(RequestCode.GET_BROKER_HA_STATUS, lambda *_: RemotingCommand.response(body=body))
    result = run_mqadmin("haStatus", "-b", scripted.address)
    assert result.out == recorded.output.replace("{broker}", scripted.address)


def test_the_flushed_offset_of_a_master_is_sent(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """To the slave."""
    scripted.on(RequestCode.RESET_MASTER_FLUSH_OFFSET, None)
    result = run_mqadmin("resetMasterFlushOffset", "-b", scripted.address, "-o", "77")
    assert result == (0, "reset master flush offset to 77 success\n", "")
    assert scripted.requests[-1].header(MasterFlushOffsetHeader).master_flush_offset == 77


def test_what_only_rocketmq_5_serves_is_refused_in_one_line(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """By this broker and by 4.9, with exit code 5."""
    result = mqadmin("resetMasterFlushOffset", "-o", "1", "-b", broker.address)
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1)
    assert "REQUEST_CODE_NOT_SUPPORTED (3)" in result.err


def test_our_broker_without_replication_has_no_slaves(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """As a master of RocketMQ 5.3 without slaves: with the end of its log, and the heads of a table without rows."""
    first, master, log_end, *others = mqadmin("haStatus", "-b", broker.address).out.splitlines()
    assert (first, master) == ("", f"#MasterAddr\t{broker.address}")
    assert re.fullmatch(r"#MasterCommitLogMaxOffset\t\d+", log_end)
    assert others[:2] == ["#SlaveNum\t0", "#InSyncSlaveNum\t0"]
    assert [line.split()[0] for line in others[2:]] == ["#SlaveAddr"]


@pytest.mark.parametrize("command", ["brokerStatus", "getBrokerConfig", "updateBrokerConfig -k a -v b", "haStatus"])
def test_a_broker_or_a_cluster_must_be_named(mqadmin: RunCommand, command: str) -> None:
    """With exit code 1; an unknown cluster has 2."""
    result = mqadmin(*command.split())
    assert result == (1, "", "mqadmin: give the address of a broker (-b) or the name of a cluster (-c).\n")
    unknown = mqadmin(*command.split(), "-c", "Nowhere")
    assert unknown == (2, "", "mqadmin: no cluster Nowhere is registered. Registered: DefaultCluster.\n")


def test_a_command_for_a_cluster_goes_on_after_a_failure(
    run_mqadmin: RunCommand, scripted: Peer, broker: InProcessBroker
) -> None:
    """Each failure is a line; the exit code is that of the first."""
    (port,) = free_ports(1)
    addresses = {0: f"127.0.0.1:{port}", 1: broker.address}
    other = BrokerData("c", "other", {1: broker.address})
    info = ClusterInfo({"b": BrokerData("c", "b", addresses), "other": other}, {"c": ["b", "other"]})
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))
    result = run_mqadmin("getBrokerConfig", "-c", "c")
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert [line for line in result.out.splitlines() if line.startswith("=")] == [
        f"============My Master: {addresses[0]}=====Slave: {broker.address}============",
        "============Master: NO_MASTER============",
        f"============My Master: NO_MASTER=====Slave: {broker.address}============",
    ]
