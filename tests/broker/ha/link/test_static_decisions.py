"""The record of a group whose leader an operator chooses."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.events import (
    Event,
    HaState,
    LifeRenewed,
    Reached,
    Read,
    RecordRead,
    Stop,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
)
from skylarkmq.broker.ha.core.record import GroupRecord, Member
from skylarkmq.broker.ha.link.static_decisions import (
    FollowerDecisions,
    LeaderDecisions,
    Revised,
    SkippedEpochs,
    decode_revised,
    encode_revised,
    load_revised,
    problem_of_leader,
    random_skips,
)
from skylarkmq.broker.ha.link.threads import DiskCalls
from tests.broker.ha.link.group import SKIPPED_EPOCHS, MemoryFile, TestGroup, TestNode
from tests.harness.waiting import until

FOUNDED = founded("a")

RECORD = GroupRecord(epoch=1, leader="n1", in_sync=("a",), members={"n1": Member("a"), "n2": Member("b")}, min=1)

SKIPPED = SkippedEpochs(by_restart=5, by_take_over=50)

TOO_LATE = encode_revised(Revised(7, msgspec.structs.replace(RECORD, epoch=1 << 62)))


class FailingFile(MemoryFile):
    def save(self, data: bytes) -> None:
        raise OSError("the disk is full")


async def asked(
    node: str, file: MemoryFile, *requests: Read | Swap, minimum: int = 1, acks: str = "all"
) -> list[Event]:
    """Return the events of these requests, one after the other."""
    events: list[Event] = []
    with ThreadPoolExecutor(1) as threads:
        decisions = LeaderDecisions(
            node, file, DiskCalls(threads), events.append, minimum=minimum, acks=acks, skipped=SKIPPED
        )
        for count, request in enumerate(requests, 1):
            decisions.ask(request)
            assert len(events) < count, "an event before the request is complete"
            await until(lambda count=count: len(events) == count)  # type: ignore[misc]
    return events


async def test_the_record_is_on_the_disk_when_a_swap_succeeds() -> None:
    """And another process reads it, at the same revision."""
    file = MemoryFile()
    events = await asked("n1", file, Read(), Swap(RECORD, 0, None), Read())
    assert events == [RecordRead(None, 0), Swapped(1), RecordRead(RECORD, 1)]
    assert file.content is not None
    assert decode_revised(file.content) == Revised(1, RECORD)
    assert await asked("n1", file, Read()) == [RecordRead(after_a_restart(RECORD), 1)]


def after_a_restart(record: GroupRecord) -> GroupRecord:
    """Return the record as its leader reads it at its next start."""
    return msgspec.structs.replace(record, epoch=record.epoch + SKIPPED.by_restart)


async def test_a_swap_of_another_revision_is_refused() -> None:
    """The record stays as it is."""
    file = MemoryFile()
    file.content = encode_revised(Revised(7, RECORD))
    refused = [Swap(RECORD, 6, None), Swap(RECORD, 0, None), Swap(RECORD, 7, "n2")]
    assert await asked("n1", file, *refused) == [SwapRefused()] * 3
    assert file.content == encode_revised(Revised(7, RECORD))


async def test_a_swap_that_cannot_be_written_is_unknown() -> None:
    """The core reads the record before it concludes anything."""
    assert await asked("n1", FailingFile(), Swap(RECORD, 0, None), Read()) == [SwapUnknown(), RecordRead(None, 0)]


async def test_a_record_that_names_another_leader_has_none() -> None:
    """An operator copied it to the node that leads from now on. That node leaves out some epochs, so that its terms
    differ from those of another node that has a copy of the record."""
    file = MemoryFile()
    file.content = encode_revised(Revised(7, RECORD))
    [read] = await asked("n2", file, Read())
    assert isinstance(read, RecordRead)
    assert read.record is not None
    assert (read.record.leader, read.record.in_sync, read.revision) == ("", ("a",), 7)
    assert read.record.epoch == RECORD.epoch + SKIPPED.by_take_over


def test_an_older_leader_that_restarts_has_the_lower_epoch() -> None:
    """Whatever the two random numbers are, up to 16 restarts after the other node took over."""
    least, most = random_skips(lambda _: 0), random_skips(lambda limit: limit - 1)
    assert 1 <= least.by_restart < most.by_restart
    assert 16 * most.by_restart < least.by_take_over


async def test_the_settings_of_the_leader_replace_those_of_the_record() -> None:
    """A group that ASYNC_MASTER founded is led by SYNC_MASTER with minInSyncReplicas=2 now."""
    file = MemoryFile()
    founded = msgspec.structs.replace(RECORD, min=1, acks="leader")
    file.content = encode_revised(Revised(7, founded))
    wanted = msgspec.structs.replace(RECORD, min=2, acks="all")
    assert await asked("n1", file, Read(), minimum=2) == [RecordRead(after_a_restart(wanted), 7)]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"revision":1}', b"\xff", TOO_LATE])
def test_a_damaged_record_is_refused(content: bytes) -> None:
    """A node that cannot read the record must not found another group. The error is one line with the next step."""
    file = MemoryFile()
    file.content = content
    with pytest.raises(DaemonEnded, match=r"haRecord is damaged .*: restore it") as ended:
        load_revised(file)
    assert not ended.value.may_restart


@pytest.mark.parametrize(
    ("node", "store_id", "last", "problem"),
    [
        ("n1", "a", 1, None),
        ("n2", "b", 1, r"not in the set .*: copy haRecord to a node of the set \(n1\)"),
        ("n1", "renewed", 1, "neither is a store of another node: start without haPeers"),
        ("n1", "a", 2, "haRecord has epoch 1, and the log has epoch 2: copy haRecord from the node that led last"),
    ],
)
def test_a_store_leads_only_with_the_newest_record_and_in_its_set(
    node: str, store_id: str, last: int, problem: str | None
) -> None:
    """It would lack acknowledged messages, or could never begin a term."""
    found = problem_of_leader(Revised(7, RECORD), node, store_id, EpochHistory((FOUNDED, Epoch(last, 0))))
    assert (found is None) == (problem is None)
    assert problem is None or re.search(problem, found or "")


async def test_the_leader_is_alive_and_reaches_all_members() -> None:
    """An operator decided which node leads, so no other condition has to hold."""
    events: list[Event] = []
    file = MemoryFile()
    file.content = encode_revised(Revised(7, RECORD))
    with ThreadPoolExecutor(1) as threads:
        decisions = LeaderDecisions(
            "n1", file, DiskCalls(threads), events.append, minimum=1, acks="all", skipped=SKIPPED
        )
        decisions.step(5.0)
    assert events == [LifeRenewed(5.0), Reached("n2")]


async def test_followers_learn_the_leader_from_their_settings() -> None:
    """With an empty set, so that a follower never begins a term."""
    events: list[Event] = []
    decisions = FollowerDecisions("n1", 2, events.append)
    decisions.ask(Read())
    decisions.ask(Swap(RECORD, 1, None))
    decisions.step(1.0)
    await asyncio.sleep(0)
    record = GroupRecord(epoch=0, leader="n1", in_sync=(), members={}, min=2)
    assert events == [RecordRead(record, 1), SwapRefused()]


async def test_a_raised_minimum_waits_for_another_copy(tmp_path: Path) -> None:
    """n1 led alone as ASYNC_MASTER. As SYNC_MASTER with minimum 2 it commits nothing until a follower is in the set."""
    async with TestGroup(tmp_path, minimum=1, acks="leader") as group:
        leader = group["n1"]
        leader.start()
        await until(lambda: leader.committed > 0)
        leader.kill()
        group.minimum, group.acks = 2, "all"
        runner = leader.start()
        await until(lambda: runner.node.leading is not None)
        end = leader.send(b"hello")
        assert leader.committed < end
        group.start("n2")
        await until(lambda: leader.committed == end)
        assert leader.record_file.content is not None
        record = decode_revised(leader.record_file.content).record
        assert (record.min, record.acks, len(record.in_sync)) == (2, "all", 2)


# Two leaders


def ending_of(node: TestNode) -> str:
    """Return why a node stopped; "" if it runs, or restarts."""
    return node.ended.reason if isinstance(node.ended, Stop) else ""


async def written_by_n2(group: TestGroup) -> int:
    """Let n2 take over from n1 and commit a message with n3. Return the end of their logs. All nodes are stopped."""
    old, new, follower = group.nodes.values()
    group.start("n1", "n2", "n3")
    await until(lambda: old.committed > 0 and len(record_of(old).in_sync) == 3)
    await until(lambda: old.committed == new.committed == follower.committed)
    for node in group.nodes.values():
        node.kill()
    new.record_file.content = old.record_file.content
    group.leader = "n2"
    group.start("n2", "n3")
    await until(lambda: new.runner is not None and new.runner.node.leading is not None)
    end = new.send(b"of n2")
    await until(lambda: follower.committed == end)
    new.kill()
    follower.kill()
    return end


def record_of(node: TestNode) -> GroupRecord:
    assert node.record_file.content is not None
    return decode_revised(node.record_file.content).record


@pytest.mark.parametrize("acks", ["all", "leader"])
async def test_an_older_leader_stops_at_the_first_node_with_a_later_term(tmp_path: Path, acks: str) -> None:
    """n1 was down while n2 led, and leads again by its own haRecord. n3 has copied n2's log: it keeps every byte. As
    ASYNC_MASTER n1 may acknowledge messages before n3 links to it."""
    async with TestGroup(tmp_path, acks=acks) as group:
        end = await written_by_n2(group)
        group.leader = "n1"
        group.start("n1")
        await until(lambda: group["n1"].runner is not None and group["n1"].runner.node.leading is not None)
        assert group["n1"].send(b"of n1") > 0
        group.start("n3")
        await until(lambda: ending_of(group["n1"]))
        assert "n3 has promised epoch 21, and this node leads in epoch 5 by an older haRecord" in ending_of(group["n1"])
        assert "copy haRecord from the node that led last" in ending_of(group["n1"])
        content = (tmp_path / "n3").read_bytes()
        assert content == (tmp_path / "n2").read_bytes()
        assert len(content) == end


async def test_two_nodes_that_take_over_from_one_record_have_different_terms(tmp_path: Path) -> None:
    """n3 takes over, too, with another copy of n1's record, and leaves out fewer epochs than n2 did: it stops. With the
    same epoch at the same offset the logs would seem to be equal."""
    async with TestGroup(tmp_path) as group:
        former = group["n1"].record_file
        await written_by_n2(group)
        other = group["n3"]
        (tmp_path / "n3").write_bytes((tmp_path / "n1").read_bytes())
        other.files.state = HaState(1, "store-n3", 0)
        other.record_file.content = former.content
        group.leader = "n3"
        group.skipped_epochs = SKIPPED_EPOCHS - 1
        group.start("n3", "n2")
        await until(lambda: ending_of(other))
        assert "n2 has promised epoch 21, and this node leads in epoch 20" in ending_of(other)
        assert b"of n2" in (tmp_path / "n2").read_bytes()


@pytest.mark.parametrize(("skipped", "line"), [(2, "n2 has promised epoch 5"), (4, "below the committed")])
@pytest.mark.parametrize("acks", ["all", "leader"])
async def test_a_leader_from_an_older_backup_leads_no_copy(tmp_path: Path, acks: str, skipped: int, line: str) -> None:
    """A copy of n1's directory, made while n1 was stopped, takes its place. Its term begins where n1's next term began.
    Their epochs differ. So either the copy stops, or n2, and n2 keeps every byte."""
    async with TestGroup(tmp_path, acks=acks) as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await until(lambda: follower.committed > 0 and len(record_of(leader).in_sync) == 2)
        leader.kill()
        copied, state, record = (tmp_path / "n1").read_bytes(), leader.files.state, leader.record_file.content
        runner = leader.start()
        await until(lambda: runner.node.leading == 1 + SKIPPED_EPOCHS + 1)
        end = leader.send(b"of the original")
        await until(lambda: follower.files.state.committed == end)
        for node in (leader, follower):
            node.kill()
        (tmp_path / "n1").write_bytes(copied)
        leader.files.state, leader.record_file.content = state, record
        group.skipped_epochs = skipped
        group.start("n1", "n2")
        await until(lambda: ending_of(leader) or ending_of(follower))
        assert line in ending_of(leader if skipped < SKIPPED_EPOCHS else follower)
        content = (tmp_path / "n2").read_bytes()
        assert content.endswith(b"of the original")
        assert len(content) == end


@pytest.mark.parametrize("terms", [1, 2])
async def test_a_leader_with_a_wiped_disk_leaves_the_copies_alone(tmp_path: Path, terms: int) -> None:
    """It founds another group, and its epochs may equal those of the lost one. The copies keep every byte, whatever the
    new leader acknowledges alone, and the line does not only say that they should be emptied."""
    async with TestGroup(tmp_path, acks="leader") as group:
        leader, follower = group["n1"], group["n2"]
        group.start("n1", "n2")
        await until(lambda: follower.committed > 0)
        for _ in range(terms - 1):
            leader.kill()
            leader.start()
        await until(lambda: follower.files.state.promised == 1 + (terms - 1) * (SKIPPED_EPOCHS + 1))
        for node in (leader, follower):
            node.kill()
        before = (tmp_path / "n2").read_bytes()
        (tmp_path / "n1").unlink()
        leader.record_file.content = None
        leader.files.state, leader.files.epochs = HaState(0, "store-n1-new", 0), EpochHistory()
        group.start("n1")
        await until(lambda: leader.runner is not None and leader.runner.node.leading == 1)
        leader.send(b"longer than the log of the copy")
        group.start("n2")
        line = "if the leader lost its disk, let a node with the messages lead"
        await until(lambda: follower.links is not None and line in follower.links.problems.get("n1", ""))
        assert (tmp_path / "n2").read_bytes() == before
        assert (leader.ended, follower.ended) == (None, None)


async def test_a_damaged_promise_disturbs_no_other_node(tmp_path: Path) -> None:
    """Its node is refused with the next step; the term and the other follower go on."""
    async with TestGroup(tmp_path) as group:
        leader, damaged = group["n1"], group["n3"]
        damaged.files.state = HaState(1 << 61, "store-n3", 0)
        group.start("n1", "n2", "n3")
        await until(lambda: damaged.links is not None and "far above epoch 1" in damaged.links.problems.get("n1", ""))
        end = leader.send(b"hello")
        await until(lambda: leader.committed == end)
        assert leader.runner is not None
        assert leader.runner.node.leading == 1
        assert (tmp_path / "n3").read_bytes() == b""
