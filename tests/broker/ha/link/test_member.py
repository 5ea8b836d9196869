"""A broker's store as a node of a link: its id, its committed mark, and the end of a node whose disk failed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.ha.core.epochs import EpochHistory, founded
from skylarkmq.broker.ha.core.events import HaState, Restart, Stop
from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.core.record import Member as RecordMember
from skylarkmq.broker.ha.link import full_disk
from skylarkmq.broker.ha.link.member import LinkMember
from skylarkmq.broker.ha.link.state_files import StateFiles
from skylarkmq.broker.ha.link.static_decisions import Revised, decode_revised, encode_revised
from skylarkmq.broker.ha.peers import parse_peers
from skylarkmq.broker.ha.status import ReplicationStatus
from skylarkmq.broker.remoting.config import TlsConfig, TlsMode
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.message_store import MessageStore
from tests.broker.store.backup.backups import back_up, restored
from tests.harness.stores import Clock, config_of, message, opened
from tests.harness.waiting import until

FOUNDED = founded("a")

PEERS = parse_peers("n1=127.0.0.1:10912,n2=127.0.0.1:20912")


class LoadedMember:
    """A member whose store is loaded, and how it ended."""

    def __init__(
        self,
        root: Path,
        node: str = "n1",
        master: BrokerRole = BrokerRole.SYNC_MASTER,
        disk: Disk | None = None,
        **settings: Any,
    ) -> None:
        self.ends: list[DaemonEnded] = []
        role = master if node == "n1" else BrokerRole.SLAVE
        replication = ReplicationConfig(broker_role=role, ha_peers=PEERS, ha_node_id=node, **settings)
        config = config_of(root, sync=True, is_follower=node != "n1")
        self.store = MessageStore(config, Clock())
        self.member = LinkMember(
            replication,
            config,
            "broker-a",
            self.store,
            self.ends.append,
            Clock(),
            server_tls=ServerTls(TlsConfig(mode=TlsMode.DISABLED)),
            client_tls=None,
            disk=disk,
        )
        self.files = StateFiles(root)
        self.member.load()

    @property
    def state(self) -> HaState:
        state = self.files.state()
        assert state is not None
        return state

    async def lead(self) -> None:
        """Begin a term, and wait for its epoch record."""
        self.store.start(asyncio.get_running_loop())
        self.member.start()
        await asyncio.wait_for(self.member.begun(), 30)
        self.member.step()

    def status(self) -> ReplicationStatus:
        return self.member.status()

    def is_blocked(self) -> bool:
        self.member.step()
        return bool(self.status().blocked)

    def close(self) -> None:
        self.member.stop()
        self.store.close()


@asynccontextmanager
async def led_alone(
    root: Path, master: BrokerRole = BrokerRole.SYNC_MASTER, **settings: Any
) -> AsyncIterator[LoadedMember]:
    """Yield a leader whose term has begun, without followers."""
    one = LoadedMember(root, "n1", master, **settings)
    try:
        await one.lead()
        yield one
    finally:
        one.close()


@pytest.mark.parametrize(("node", "is_committed"), [("n1", True), ("n2", False)])
async def test_a_founder_counts_its_own_messages_as_committed(tmp_path: Path, node: str, is_committed: bool) -> None:
    """It acknowledged them alone. A follower's messages from before the group are not the group's."""
    with opened(tmp_path) as one:
        one.put(message(b"before the group"))
        end = one.store.max_physical_offset
    one_member = LoadedMember(tmp_path, node)
    assert one_member.state == HaState(0, one_member.state.store_id, end if is_committed else 0)
    one_member.close()
    again = LoadedMember(tmp_path, node)
    assert again.state == one_member.state
    again.close()


async def test_a_copy_without_the_record_of_its_group_does_not_lead(tmp_path: Path) -> None:
    """It was a follower, and its node is now the first of haPeers. The store is closed again."""
    with opened(tmp_path) as one:
        one.put(message(b"of the group"))
    files = StateFiles(tmp_path)
    files.keep_state(HaState(1, "copy", 0))
    files.keep_epochs(EpochHistory((FOUNDED,)))
    with pytest.raises(DaemonEnded, match="copy haRecord from the former leader") as ended:
        LoadedMember(tmp_path)
    assert not ended.value.may_restart
    with opened(tmp_path) as one:
        assert one.store.max_physical_offset


async def test_a_store_outside_of_the_set_does_not_lead(tmp_path: Path) -> None:
    """It would wait for a term forever. The daemon ends instead, with the next step."""
    files = StateFiles(tmp_path)
    files.keep_state(HaState(1, "renewed", 0))
    record = GroupRecord(epoch=1, leader="n1", in_sync=("b",), members={"n2": RecordMember("b")}, min=1)
    files.record.save(encode_revised(Revised(3, record)))
    with pytest.raises(DaemonEnded, match=r"not in the set .*: copy haRecord to a node of the set \(n2\)") as ended:
        LoadedMember(tmp_path)
    assert not ended.value.may_restart
    with opened(tmp_path):
        pass


async def test_a_record_that_is_older_than_the_log_does_not_lead(tmp_path: Path) -> None:
    """n2 led in a later epoch, and this node copied its log. The own haRecord is from before that."""
    async with led_alone(tmp_path):
        pass
    files = StateFiles(tmp_path)
    content = files.record.load()
    async with led_alone(tmp_path):
        pass
    assert content is not None
    files.record.save(content)
    with pytest.raises(DaemonEnded, match=r"haRecord has epoch 1, and the log has epoch \d+"):
        LoadedMember(tmp_path)


async def test_a_restored_backup_of_a_leader_does_not_lead(tmp_path: Path) -> None:
    """It may lack acknowledged messages. The backup has no state of the group: the store gets an id of its own, also
    with the record of the lost leader. It may follow, or serve alone."""
    root, copy = tmp_path / "store", tmp_path / "restored"
    async with led_alone(root, BrokerRole.ASYNC_MASTER, min_in_sync_replicas=1) as one:
        await until(lambda: not one.is_blocked())
        one.store.put(message(b"of the group"))
        one.store.commit()
        back_up(root, tmp_path / "backup")
    restored(tmp_path / "backup", copy)
    with pytest.raises(DaemonEnded, match="copy haRecord from the former leader") as ended:
        LoadedMember(copy)
    assert not ended.value.may_restart
    (copy / "haRecord").write_bytes((root / "haRecord").read_bytes())
    with pytest.raises(DaemonEnded, match="not in the set"):
        LoadedMember(copy)
    follower = LoadedMember(copy, "n2")
    assert follower.state.committed == 0
    assert follower.state.store_id != one.state.store_id
    follower.close()
    with opened(copy) as alone:
        assert alone.bodies() == [b"of the group"]


async def test_a_damaged_record_stops_the_start_with_one_line(tmp_path: Path) -> None:
    """Nothing is replaced. The store is not loaded."""
    files = StateFiles(tmp_path)
    files.record.save(b"{}")
    with pytest.raises(DaemonEnded, match="haRecord is damaged") as ended:
        LoadedMember(tmp_path)
    assert not ended.value.may_restart
    assert files.record.load() == b"{}"


async def test_a_disk_that_takes_no_first_state_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one line. The store is closed again."""

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(StateFiles, "keep_state", refuse)
        with pytest.raises(StoreError, match="cannot be prepared: no space left"):
            LoadedMember(tmp_path)
    LoadedMember(tmp_path).close()


@pytest.mark.parametrize("minimum", [1, 2])
async def test_later_settings_apply_to_a_group_that_exists(tmp_path: Path, minimum: int) -> None:
    """An ASYNC_MASTER founded it. As SYNC_MASTER with minInSyncReplicas=2 it acknowledges nothing alone."""
    async with led_alone(tmp_path, BrokerRole.ASYNC_MASTER, min_in_sync_replicas=1) as one:
        assert one.status().min_in_sync == 1
    async with led_alone(tmp_path, min_in_sync_replicas=minimum) as one:
        await until(lambda: one.is_blocked() == (minimum == 2))
        content = one.files.record.load()
        assert content is not None
        record = decode_revised(content).record
        assert (record.min, record.acks, record.in_sync) == (minimum, "all", (one.state.store_id,))


async def test_epochs_are_kept_for_the_bytes_that_retention_removes(tmp_path: Path) -> None:
    """When a term begins, and at a start that finds epochs which the file does not have."""
    async with led_alone(tmp_path) as one:
        history = one.files.epochs()
    assert [epoch.epoch for epoch in history.entries] == [0, 1]
    one.files.keep_epochs(EpochHistory(history.entries[:1]))
    one = LoadedMember(tmp_path)
    assert one.files.epochs() == history
    one.close()


async def test_stores_have_ids_of_their_own(tmp_path: Path) -> None:
    """A new directory is another copy."""
    first, second = LoadedMember(tmp_path / "1"), LoadedMember(tmp_path / "2")
    assert first.state.store_id != second.state.store_id
    first.close()
    second.close()


async def test_a_log_that_ends_before_its_committed_mark_gets_a_new_id(tmp_path: Path) -> None:
    """It lost bytes that it acknowledged. The promise stays."""
    StateFiles(tmp_path).keep_state(HaState(7, "old", 1_000))
    member = LoadedMember(tmp_path)
    assert (member.state.promised, member.state.committed) == (7, 0)
    assert member.state.store_id != "old"
    member.close()


async def test_a_log_that_ends_before_a_record_that_seems_torn_gets_a_new_id(tmp_path: Path) -> None:
    """The record may have been whole, synced and acknowledged: its properties end with zeros."""
    with opened(tmp_path) as one:
        one.put(message(b"whole"), message(b"torn?", properties=b"k\x01\0\0"))
    StateFiles(tmp_path).keep_state(HaState(7, "old", 50))
    (tmp_path / "abort").write_bytes(b"1")
    (tmp_path / "checkpoint").unlink()
    member = LoadedMember(tmp_path, "n2")
    assert member.store.max_physical_offset < one.store.max_physical_offset
    assert (member.state.promised, member.state.committed) == (7, 50)
    assert member.state.store_id != "old"
    member.close()


async def test_a_leader_of_the_last_term_keeps_its_id(tmp_path: Path) -> None:
    """Its torn records are torn: whole ones that seem so lie below `haSynced`. A follower forgets that file."""
    with opened(tmp_path) as one:
        one.put(message(b"whole"), message(b"torn?", properties=b"k\x01\0\0"))
    files = StateFiles(tmp_path)
    files.keep_state(HaState(7, "old", 50))
    record = GroupRecord(epoch=7, leader="n1", in_sync=("old",), members={"n1": RecordMember("old")}, min=1)
    files.record.save(encode_revised(Revised(3, record)))
    files.keep_synced(one.store.max_physical_offset)

    def load(node: str) -> LoadedMember:
        (tmp_path / "abort").write_bytes(b"1")
        (tmp_path / "checkpoint").unlink(missing_ok=True)
        return LoadedMember(tmp_path, node)

    member = load("n1")
    assert (member.store.max_physical_offset, member.state.store_id) == (one.store.max_physical_offset, "old")
    member.close()
    files.forget_synced()
    member = load("n1")
    assert member.store.max_physical_offset < one.store.max_physical_offset
    assert member.state.store_id == "old"
    member.close()
    files.keep_synced(1)
    load("n2").close()
    assert files.synced() == 0


async def test_a_failed_sync_gives_the_store_a_new_id_and_ends_the_daemon(tmp_path: Path) -> None:
    """On the disk, before the daemon ends: a follower may be started again at once."""
    StateFiles(tmp_path).keep_state(HaState(7, "old", 0))
    member = LoadedMember(tmp_path, "n2")
    member.member._end(Restart("a sync of the log failed", new_store=True))
    assert member.state.promised == 7
    assert member.state.store_id != "old"
    [end] = member.ends
    assert (str(end), end.may_restart) == ("the store has to be restarted: a sync of the log failed", True)
    member.close()


async def test_a_leader_whose_disk_failed_needs_an_operator(tmp_path: Path) -> None:
    """Its new store is not in the set, so a new start would end, too. The line names the nodes that may lead."""
    async with led_alone(tmp_path) as one:
        content = one.files.record.load()
        assert content is not None
        revised = decode_revised(content)
        members = {**revised.record.members, "n2": RecordMember("b")}
        record = msgspec.structs.replace(revised.record, members=members, in_sync=(one.state.store_id, "b"))
        one.files.record.save(encode_revised(Revised(revised.revision + 1, record)))
        one.member._end(Restart("a sync of the log failed", new_store=True))
        [end] = one.ends
        assert not end.may_restart
        assert "a sync of the log failed: store " in str(end)
        assert "copy haRecord to a node of the set (n2), and name it first in haPeers" in str(end)


async def test_a_leader_without_another_store_serves_alone(tmp_path: Path) -> None:
    """Its disk failed before any follower had its messages."""
    async with led_alone(tmp_path) as one:
        one.member._end(Restart("a sync of the log failed", new_store=True))
        [end] = one.ends
        assert not end.may_restart
        assert "start without haPeers to serve the messages on this disk" in str(end)


async def test_a_follower_that_led_before_has_no_record(tmp_path: Path) -> None:
    """It promised a later epoch, and crashed before it copied any byte of it: it must not lead from its old record."""
    async with led_alone(tmp_path) as one:
        pass
    follower = LoadedMember(tmp_path, "n2")
    follower.member._files.keep_state(HaState(9, one.state.store_id, 0))
    follower.close()
    with pytest.raises(DaemonEnded, match="copy haRecord from the former leader") as ended:
        LoadedMember(tmp_path)
    assert not ended.value.may_restart


async def test_a_disk_that_takes_no_state_needs_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with the old id would count bytes that may be lost."""

    def refuse(*_: object) -> None:
        raise OSError("input/output error")

    member = LoadedMember(tmp_path)
    monkeypatch.setattr(StateFiles, "keep_state", refuse)
    member.member._end(Restart("a sync of the log failed", new_store=True))
    [end] = member.ends
    assert not end.may_restart
    assert "start this node with an empty directory" in str(end)
    member.close()


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_a_node_whose_disk_is_full_restarts_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """A supervisor would start it again and again until then. /readyz has the reason, and its store id stays."""
    monkeypatch.setattr(full_disk, "CHECK_S", 0.0)
    disk = FullDisk()
    one = LoadedMember(tmp_path, node, disk=disk)
    one.store.start(asyncio.get_running_loop())
    one.member.start()
    before = one.state.store_id
    try:
        one.member._end(Restart("the disk takes no writes"))
        one.member.step()
        assert one.ends == []
        assert "the disk is full, this node restarts once it has room for a segment" in one.status().blocked
        assert one.store.is_writable is False
        disk.free = 1 << 30
        one.member.step()
        one.member.step()
        assert [(str(end), end.may_restart) for end in one.ends] == [
            ("the store has to be restarted: the disk takes no writes", True)
        ]
        assert one.state.store_id == before
    finally:
        one.close()


class FullDisk(Disk):
    """A disk whose file system has `free` bytes."""

    free = 1_000

    def free_bytes(self, path: str) -> int:
        return self.free


async def test_a_stop_says_why(tmp_path: Path) -> None:
    """The daemon must not be started again before an operator has acted."""
    member = LoadedMember(tmp_path, "n2")
    member.member._end(Stop("the store lost acknowledged bytes"))
    [end] = member.ends
    assert (str(end), end.may_restart) == ("replication stopped: the store lost acknowledged bytes", False)
    member.close()


async def test_a_leader_without_followers_is_blocked(tmp_path: Path) -> None:
    """Its status has the reason, and each missing node."""
    async with led_alone(tmp_path, min_in_sync_replicas=2) as one:
        status = one.status()
        assert "the set has 1 of 2 synced copies" in status.blocked
        assert (status.epoch, status.in_sync, status.min_in_sync) == (1, 1, 2)
        assert [(member.name, member.state) for member in status.members] == [("n2", "disconnected")]
        assert not one.store.is_writable
