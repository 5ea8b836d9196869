"""The record of a group whose leader an operator chooses."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.ha.core.epochs import FOUNDED, Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import (
    Event,
    LifeRenewed,
    Reached,
    Read,
    RecordRead,
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
    decode_revised,
    encode_revised,
    load_revised,
    problem_of_leader,
)
from skylarkmq.broker.ha.link.threads import DiskCalls
from skylarkmq.broker.store.errors import StoreError
from tests.broker.ha.link.group import MemoryFile, TestGroup
from tests.harness.waiting import until

RECORD = GroupRecord(epoch=1, leader="n1", in_sync=("a",), members={"n1": Member("a"), "n2": Member("b")}, min=1)


class FailingFile(MemoryFile):
    def save(self, data: bytes) -> None:
        raise OSError("the disk is full")


async def asked(
    node: str, file: MemoryFile, *requests: Read | Swap, minimum: int = 1, acks: str = "all"
) -> list[Event]:
    """Return the events of these requests, one after the other."""
    events: list[Event] = []
    with ThreadPoolExecutor(1) as threads:
        decisions = LeaderDecisions(node, file, DiskCalls(threads), events.append, minimum=minimum, acks=acks)
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
    assert await asked("n1", file, Read()) == [RecordRead(RECORD, 1)]


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
    """An operator copied it to the node that leads from now on."""
    file = MemoryFile()
    file.content = encode_revised(Revised(7, RECORD))
    [read] = await asked("n2", file, Read())
    assert isinstance(read, RecordRead)
    assert read.record is not None
    assert (read.record.leader, read.record.in_sync, read.revision) == ("", ("a",), 7)


async def test_the_settings_of_the_leader_replace_those_of_the_record() -> None:
    """A group that ASYNC_MASTER founded is led by SYNC_MASTER with minInSyncReplicas=2 now."""
    file = MemoryFile()
    founded = msgspec.structs.replace(RECORD, min=1, acks="leader")
    file.content = encode_revised(Revised(7, founded))
    wanted = msgspec.structs.replace(RECORD, min=2, acks="all")
    assert await asked("n1", file, Read(), minimum=2) == [RecordRead(wanted, 7)]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"revision":1}', b"\xff"])
def test_a_damaged_record_is_refused(content: bytes) -> None:
    """A node that cannot read the record must not found another group. The error is one line with the next step."""
    file = MemoryFile()
    file.content = content
    with pytest.raises(StoreError, match=r"haRecord is damaged .*: restore it"):
        load_revised(file)


@pytest.mark.parametrize(
    ("node", "store_id", "last", "problem"),
    [
        ("n1", "a", 1, None),
        ("n2", "b", 1, r"not in the set .*: copy haRecord to a node of the set \(n1\)"),
        ("n1", "renewed", 1, "no store of another node is: start without haPeers"),
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
        LeaderDecisions("n1", file, DiskCalls(threads), events.append, minimum=1, acks="all").step(5.0)
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
