"""Three broker processes that are linked: what is acknowledged is on two disks, whichever process is killed."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from skylarkmq.broker.ha.link.epoch_records import EPOCH_TOPIC
from tests.ha.group_daemons import wait
from tests.ha.linked_group import LinkedGroup, Sent
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK

pytestmark = pytest.mark.daemon

SERVICE_NOT_AVAILABLE = 14


def copies_of(group: LinkedGroup, sent: Sent, body: bytes) -> int:
    """Return on how many disks the record of a message is, whole, where its response says."""
    whole = [group.log(name)[sent.offset :][:300] for name in group.names]
    return sum(body in record for record in whole)


def test_each_acknowledged_message_is_on_two_disks(tmp_path: Path) -> None:
    """While followers are killed and come back; and the leader, with all it acknowledged."""
    with LinkedGroup(tmp_path) as group:
        group.start("n1", "n2", "n3")
        group.wait_writable()
        acknowledged: list[tuple[Sent, bytes]] = []

        def send(count: int) -> None:
            for _ in range(count):
                body = b"message %d" % len(acknowledged)
                sent = group.send(body)
                assert sent.code == 0, (sent, group.daemons["n1"].output)
                acknowledged.append((sent, body))
                assert copies_of(group, sent, body) >= 2

        send(20)
        group.kill("n2")
        send(20)
        group.start("n2")
        group.wait_equal("n2", "n3")
        group.kill("n3")
        send(20)
        group.kill("n1")
        group.start("n1", "n3")
        group.wait_writable()
        send(20)
        group.wait_equal("n2", "n3")
        for name in ("n1", "n2", "n3"):
            group.kill(name)
        assert group.log("n1") == group.log("n2") == group.log("n3")
        for sent, body in acknowledged:
            assert copies_of(group, sent, body) == 3
        assert group.log("n1").count(EPOCH_TOPIC.encode()) == 2


def test_below_the_minimum_the_group_is_read_only(tmp_path: Path) -> None:
    """Sends get SERVICE_NOT_AVAILABLE (14) at once, /readyz has the reason, and a follower that returns ends it."""
    with LinkedGroup(tmp_path) as group:
        group.start("n1")
        assert group.send(b"alone").code == SERVICE_NOT_AVAILABLE
        status, line = group.ready()
        assert status == 503
        assert "start the other nodes of haPeers, or repair their links" in line
        group.start("n2")
        group.wait_writable()
        sent = group.send(b"together")
        assert sent.code == 0
        assert b"alone" not in group.log("n1")
        group.kill("n2")
        wait(lambda: group.ready()[0] == 503)
        assert "1 of 2 synced copies are linked" in group.ready()[1]
        assert group.send(b"alone again").code == SERVICE_NOT_AVAILABLE
        group.start("n2", "n3")
        group.wait_writable()
        assert group.send(b"together again").code == 0
        group.wait_equal("n2", "n3")
        assert b"alone" not in group.log("n1")


def test_an_operator_lets_another_node_lead(tmp_path: Path) -> None:
    """With the record of the former leader, and only a node whose store is in the set."""
    with LinkedGroup(tmp_path) as group:
        group.start("n1", "n2")
        group.wait_writable()
        sent = group.send(b"before")
        assert group.stop("n1") == 0
        assert group.stop("n2") == 0
        record = (tmp_path / "n1" / "store" / "haRecord").read_bytes()
        (tmp_path / "n2" / "store" / "haRecord").write_bytes(record)
        group.leader = "n2"
        group.start("n2", "n1", "n3")
        group.wait_writable()
        assert b"before" in group.log("n2")[sent.offset :][:300]
        assert group.send(b"after").code == 0
        group.wait_equal("n1", "n3")


def test_strangers_are_refused_and_the_group_is_not_disturbed(tmp_path: Path) -> None:
    """Another secret, a log of another broker, random bytes: a line that says what to do, and nothing appended."""
    with LinkedGroup(tmp_path) as group:
        group.start("n1", "n2")
        group.wait_writable()
        group.start("n3", haClusterSecret="the secret of another group")
        wait(lambda: "set the same haClusterSecret on all nodes" in group.daemons["n3"].output)
        assert group.log("n3") == b""
        group.kill("n3")
        for sent in (os.urandom(4_000), b"\xf3" + os.urandom(4_000), b"\x16" + os.urandom(4_000)):
            with socket.create_connection((LOOPBACK, group.ha_ports["n1"])) as stranger:
                stranger.sendall(sent)
        assert group.send(b"undisturbed").code == 0
        group.wait_equal("n2")


def test_an_asynchronous_leader_acknowledges_alone(tmp_path: Path) -> None:
    """It takes messages without followers, shows all of its log after a kill, and followers copy it later."""
    with LinkedGroup(tmp_path, minInSyncReplicas=1, flushDiskType="ASYNC_FLUSH") as group:
        group.start("n1", brokerRole="ASYNC_MASTER")
        group.wait_writable()
        assert [group.send(b"alone %d" % number).code for number in range(10)] == [0] * 10
        group.kill("n1")
        group.start("n1", brokerRole="ASYNC_MASTER")
        group.start("n2")
        group.wait_writable()
        assert group.max_offset() == 10
        assert group.send(b"together").code == 0
        group.wait_equal("n2")
        assert group.max_offset() == 11


def test_a_store_that_lost_acknowledged_messages_needs_an_operator(tmp_path: Path) -> None:
    """The daemon ends with exit code 78 and a line that says what to do. With an empty directory it is a new copy."""
    with LinkedGroup(tmp_path) as group:
        group.start("n1", "n2")
        group.wait_writable()
        sent = group.send(b"acknowledged")
        group.wait_equal("n2")
        assert group.stop("n2") == 0
        store = tmp_path / "n2" / "store"
        state = json.loads((store / "haState").read_text()) | {"committed": 0}
        (store / "haState").write_text(json.dumps(state))
        with (store / "commitlog" / f"{0:020}").open("r+b") as log:
            log.seek(sent.offset)
            log.write(bytes(1_000))
        group.start("n2", is_awaited=False)
        assert group.daemons["n2"].process.wait(PROCESS_LIMIT_S) == 78
        line = group.daemons["n2"].output.splitlines()[-1]
        reason = "the store lost acknowledged bytes: start the node with an empty directory"
        assert line == f"mqbroker: replication stopped: {reason}"
        shutil.rmtree(store)
        group.kill("n2")
        group.start("n2")
        group.wait_equal("n2")


@pytest.mark.parametrize("file", ["haState", "epochFileCheckpoint", "haRecord"])
def test_a_damaged_file_needs_an_operator(tmp_path: Path, file: str) -> None:
    """A supervisor must not start the daemon again and again: it ends with exit code 78 and the next step."""
    store = tmp_path / "n1" / "store"
    store.mkdir(parents=True)
    (store / file).write_text("damaged")
    with LinkedGroup(tmp_path) as group:
        group.start("n1", is_awaited=False)
        assert group.daemons["n1"].process.wait(120) == 78
        line = group.daemons["n1"].output.splitlines()[-1]
        assert line.startswith("mqbroker: ")
        assert f"{file} is damaged" in line
        assert "restore it, or" in line


def test_an_older_leader_ends_when_a_node_of_the_newest_one_links(tmp_path: Path) -> None:
    """n2 led while n1 was down. n1 leads again by its own haRecord: it exits with code 78, and n3 keeps its log."""
    with LinkedGroup(tmp_path) as group:
        group.start("n1", "n2")
        group.wait_writable()  # n2 is in the set now: only such a node may lead
        group.start("n3")
        assert group.send(b"of n1").code == 0
        group.wait_equal("n2", "n3")
        for name in group.names:
            assert group.stop(name) == 0
        shutil.copy(tmp_path / "n1" / "store" / "haRecord", tmp_path / "n2" / "store" / "haRecord")
        group.leader = "n2"
        group.start("n2", "n3")
        group.wait_writable()
        assert group.send(b"of n2").code == 0
        group.wait_equal("n3")
        promised = group.state("n3")["promised"]
        for name in ("n2", "n3"):
            assert group.stop(name) == 0
        before = group.log("n3")
        group.leader = "n1"
        group.start("n1", "n3", is_awaited=False)
        assert group.daemons["n1"].process.wait(120) == 78
        line = group.daemons["n1"].output.splitlines()[-1]
        assert f"n3 has promised epoch {promised}, and this node leads in epoch " in line
        assert "by an older haRecord" in line
        assert group.log("n3") == before
