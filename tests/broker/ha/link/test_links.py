"""Nodes of a group over real connections: copies, catch-up, and peers that are refused."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import HaState, Restart, Stop
from skylarkmq.broker.ha.core.messages import Ack, Beat, Hello
from skylarkmq.broker.ha.link import catch_up, connection, feed
from skylarkmq.broker.ha.link.frames import PREFACE, encode
from tests.broker.ha.link.group import SEGMENT, SKIPPED_EPOCHS, TAKE_OVER_EPOCHS, TestGroup, TestNode, is_catching_up
from tests.harness.waiting import until

SECRET = b"the secret of this group"


async def leads(node: TestNode) -> None:
    await until(lambda: node.runner is not None and node.runner.node.leading is not None)


def shown(node: TestNode) -> int:
    return 0 if node.log is None else node.log.shown


def backlog_bytes(node: TestNode) -> int:
    """Return the bytes that wait in the node for its peers."""
    assert node.links is not None
    return sum(connection.backlog for connection in node.links._connections.values())


def content(node: TestNode) -> bytes:
    return (node.directory / node.name).read_bytes()


@pytest.mark.parametrize("secret", [None, SECRET])
async def test_a_message_is_committed_once_two_nodes_have_synced_it(tmp_path: Path, secret: bytes | None) -> None:
    """With min 2, and not before: both followers get the bytes, at the same offsets."""
    async with TestGroup(tmp_path, secret=secret) as group:
        leader = group["n1"]
        group.start("n1")
        await leads(leader)
        end = leader.send(b"hello")
        await asyncio.sleep(0.1)
        assert leader.committed == 0
        group.start("n2")
        await until(lambda: leader.committed == end)
        assert content(group["n2"]) == content(leader)
        group.start("n3")
        await until(lambda: shown(group["n3"]) == end)
        assert content(group["n3"]) == content(leader)
        await until(lambda: shown(leader) == shown(group["n2"]) == end)


async def test_an_acknowledgement_waits_for_the_sync_of_the_follower(tmp_path: Path) -> None:
    """Bytes in the page cache of the follower are no copy."""
    async with TestGroup(tmp_path) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        await until(lambda: leader.committed > 0)
        assert follower.log is not None
        follower.log.is_synced_at_once = False
        before, end = leader.committed, leader.send(b"hello")
        await until(lambda: follower.log is not None and follower.log.end == end)
        await asyncio.sleep(0.1)
        assert leader.committed == before
        follower.log.sync()
        await until(lambda: leader.committed == end)


async def test_a_follower_that_comes_back_catches_up(tmp_path: Path) -> None:
    """Messages of its absence are sent after it is back, once more from its own end."""
    async with TestGroup(tmp_path, minimum=1) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        first = leader.send(b"first")
        await until(lambda: shown(follower) == first)
        follower.kill()
        second = leader.send(b"second")
        follower.start()
        await until(lambda: shown(follower) == second)
        assert content(follower) == content(leader)


async def test_a_follower_far_behind_is_served_from_the_files(tmp_path: Path) -> None:
    """More than FAR_BYTES: by sendfile, in frames that end with segments, at the configured rate."""
    async with TestGroup(tmp_path, minimum=1) as group:
        group.rate = 200 << 20
        leader, follower = group["n1"], group["n2"]
        group.start("n1")
        await leads(leader)
        for size in (5 << 20, 5 << 20, 7 << 20):
            leader.send(os.urandom(size).replace(b"\xffE", b"xx"))
        assert leader.log is not None
        assert leader.log.end > feed.FAR_BYTES
        follower.start()
        await until(lambda: is_catching_up(leader))
        end = leader.send(b"while it catches up")
        await until(lambda: shown(follower) == end)
        assert content(follower) == content(leader)
        assert leader.links is not None
        await until(lambda: not is_catching_up(leader))


async def test_the_uncommitted_end_of_a_former_leader_is_removed(tmp_path: Path) -> None:
    """n1 stops with a message that no other node has. n2 leads from its record; n1 follows and truncates its log."""
    async with TestGroup(tmp_path) as group:
        old, new = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(old)
        end = old.send(b"committed")
        await until(lambda: shown(new) == end)
        new.kill()
        old.send(b"only here")
        old.kill()
        new.record_file.content = old.record_file.content
        group.leader = "n2"
        group.start("n2", "n1")
        await leads(new)
        assert new.runner is not None
        assert new.runner.node.leading == 2 + TAKE_OVER_EPOCHS + SKIPPED_EPOCHS
        end = new.send(b"of the new term")
        await until(lambda: shown(old) == end)
        assert content(old) == content(new)
        assert b"only here" not in content(old)


async def test_with_acks_leader_a_message_is_shown_once_it_is_synced_here(tmp_path: Path) -> None:
    """ASYNC_MASTER: followers show what is committed."""
    async with TestGroup(tmp_path, minimum=1, acks="leader") as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        await until(lambda: follower.committed > 0)
        follower.kill()
        end = leader.send(b"hello")
        await until(lambda: shown(leader) == end)


# Peers that are refused


def problem(node: TestNode, peer: str) -> str:
    return "" if node.links is None else node.links.problems.get(peer, "")


@pytest.mark.parametrize(
    ("leaders", "followers", "line"),
    [
        (SECRET, b"a secret of another group", "set the same haClusterSecret on all nodes"),
        (SECRET, None, "set haClusterSecret on the node that connects"),
        (None, SECRET, "set haClusterSecret here"),
    ],
)
async def test_another_secret_is_refused(
    tmp_path: Path, leaders: bytes | None, followers: bytes | None, line: str
) -> None:
    """Both sides get the line, nothing is appended, and the other follower goes on."""
    async with TestGroup(tmp_path, secret=leaders) as group:
        leader, stranger = group["n1"], group["n3"]
        stranger.secret = followers
        group.start("n1", "n2", "n3")
        await leads(leader)
        await until(lambda: line in problem(stranger, "n1"))
        end = leader.send(b"hello")
        await until(lambda: leader.committed == end)
        assert line in problem(leader, "127.0.0.1")
        assert content(stranger) == b""
        assert stranger.files.state == HaState(0, "store-n3", 0)


async def test_another_group_is_refused(tmp_path: Path) -> None:
    """By its name, before its epoch is looked at."""
    async with TestGroup(tmp_path) as group:
        stranger = group["n3"]
        stranger.group_name = "broker-b"
        group.start("n1", "n2", "n3")
        await until(lambda: "this is group broker-a, not broker-b" in problem(stranger, "n1"))
        assert content(stranger) == b""


async def test_a_node_that_peers_do_not_name_is_refused(tmp_path: Path) -> None:
    """The line names the setting."""
    async with TestGroup(tmp_path) as group:
        stranger = TestNode(group, "n9", tmp_path)
        group.start("n1", "n2")
        stranger.start()
        try:
            await until(lambda: "haPeers of n1 does not name n9" in problem(stranger, "n1"))
        finally:
            stranger.close()
        assert content(stranger) == b""


async def test_a_log_that_diverged_is_refused(tmp_path: Path) -> None:
    """A store that was in use before has nothing in common with the group's log: it stays as it is."""
    async with TestGroup(tmp_path) as group:
        stranger = group["n3"]
        (tmp_path / "n3").write_bytes(b"messages of another broker")
        group.start("n1", "n2", "n3")
        await until(lambda: "start with an empty directory" in problem(stranger, "n1"))
        assert content(stranger) == b"messages of another broker"


async def test_a_copy_of_a_store_is_refused(tmp_path: Path) -> None:
    """The id of a store belongs to one node."""
    async with TestGroup(tmp_path) as group:
        leader, stranger = group["n1"], group["n3"]
        group.start("n1", "n2")
        await until(lambda: leader.committed > 0)
        stranger.files.state = group["n2"].files.state
        stranger.start()
        await until(lambda: "a store cannot be copied" in problem(stranger, "n1"))


async def test_a_wiped_disk_with_an_old_name_is_a_new_member(tmp_path: Path) -> None:
    """Its new store gets all bytes, and counts only after that."""
    async with TestGroup(tmp_path) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        end = leader.send(b"hello")
        await until(lambda: leader.committed == end)
        follower.kill()
        (tmp_path / "n2").unlink()
        follower.files.state = HaState(0, "store-n2-new", 0)
        follower.start()
        await until(lambda: content(follower) == content(leader))
        end = leader.send(b"again")
        await until(lambda: leader.committed == end)
        assert content(follower) == content(leader)


async def test_a_store_that_lost_acknowledged_bytes_stops_its_node(tmp_path: Path) -> None:
    """An operator has to act: the store needs a new id."""
    async with TestGroup(tmp_path, minimum=1) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        end = leader.send(b"hello")
        await until(lambda: shown(follower) == end)
        await until(lambda: leader.runner is not None and len(leader.runner.node.decisions.record.in_sync) == 2)  # type: ignore[union-attr]
        follower.kill()
        os.truncate(tmp_path / "n2", end - 2)
        follower.files.state = HaState(1, "store-n2", 0)
        follower.start()
        await until(lambda: follower.ended is not None)
        assert isinstance(follower.ended, Stop)
        assert "empty directory" in follower.ended.reason


@pytest.mark.parametrize(
    "sent",
    [
        b"\xf3 no preface",
        b"\xff" * 100,
        PREFACE + os.urandom(100),
        PREFACE + encode(Beat(1, 1)),
        PREFACE + b"\x7f\xff\xff\xff",
    ],
)
async def test_random_bytes_end_only_their_connection(tmp_path: Path, sent: bytes) -> None:
    """The other follower goes on."""
    async with TestGroup(tmp_path) as group:
        leader = group["n1"]
        group.start("n1", "n2")
        await until(lambda: leader.committed > 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", group.peers["n1"].port)
        writer.write(sent)
        if not sent.endswith(b"\x7f\xff\xff\xff"):
            await reader.read()
        end = leader.send(b"hello")
        await until(lambda: leader.committed == end)
        writer.close()


async def test_a_follower_that_never_reads_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backlog in the leader stays bounded, and the others are not delayed."""
    monkeypatch.setattr(connection, "STALLED_S", 0.3)
    monkeypatch.setattr(catch_up, "STALLED_S", 0.3)
    async with TestGroup(tmp_path, minimum=1) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        await until(lambda: shown(follower) > 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", group.peers["n1"].port)
        hello = Hello("broker-a", "n3", "another", 0, EpochHistory(), 0, 0, 1, SEGMENT)
        writer.write(PREFACE + encode(hello) + encode(Ack(1, 0, 0)))
        await reader.readexactly(len(PREFACE) + 1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert leader.links is not None
        largest = 0
        for _ in range(40):
            end = leader.send(bytes(1 << 20))
            largest = max(largest, backlog_bytes(leader))
            await asyncio.sleep(0)
        assert largest <= 2 * (connection.HIGH_BYTES + feed.FAR_BYTES)
        await until(lambda: shown(follower) == end)
        await until(lambda: "took no byte" in problem(leader, "n3"))
        assert len(leader.links._opened) == 1
        writer.transport.abort()


@pytest.mark.parametrize(("code", "is_new"), [(errno.EIO, True), (errno.ENOSPC, False)])
async def test_a_failed_write_restarts_the_store(tmp_path: Path, code: int, *, is_new: bool) -> None:
    """With a new id, because the state of the disk is unknown. A full disk has all that was acknowledged, so the store
    stays the same, and copies the rest after its restart."""
    async with TestGroup(tmp_path, minimum=1) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await leads(leader)
        await until(lambda: follower.committed > 0)
        assert follower.log is not None
        follower.log.fails = OSError(code, os.strerror(code))
        leader.send(b"hello")
        await until(lambda: follower.ended is not None)
        assert isinstance(follower.ended, Restart)
        assert follower.ended.new_store == is_new
        follower.start()
        await until(lambda: content(follower) == content(leader))


async def test_a_failed_write_of_the_state_restarts_the_store(tmp_path: Path) -> None:
    """A promise that is not on the disk is no promise."""
    async with TestGroup(tmp_path, minimum=1) as group:
        group.start("n1")
        await leads(group["n1"])
        group["n2"].files.fails = True
        group.start("n2")
        await until(lambda: group["n2"].ended is not None)
        assert isinstance(group["n2"].ended, Restart)
        assert group["n2"].ended.new_store
