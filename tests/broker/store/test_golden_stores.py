"""Stores written by RocketMQ and opened here: records, units, offsets, times and gets are the same as in RocketMQ.

Stores left by a crash are compared after recovery with the results of RocketMQ 5.3.3 after its own recovery.
"""

from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.read.offset_by_time import Boundary
from skylarkmq.protocol.record import Record, parse
from tests.harness.golden_stores import GOLDEN_STORES, Golden, described, golden_store
from tests.harness.stores import opened, records_of

STOPPED = [golden for golden in GOLDEN_STORES if golden[1] in {"clean", "crc", "trimmed"}]
WHOLE = [golden for golden in STOPPED if golden[1] != "trimmed"]  # the log begins at its first record


@pytest.fixture(params=GOLDEN_STORES, ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    version, name = request.param
    return golden_store(version, name, tmp_path)


def is_ours(entry: dict[str, Any]) -> bool:
    """Return whether this store reads the queue: batch queues are another queue type."""
    return not entry["topic"].startswith("FixtureBatchCQ")


def test_end_and_offsets(golden: Golden) -> None:
    """The log has the expected end, and every queue its min, max and earliest store time."""
    expected = golden.expected
    with opened(golden.root) as it:
        assert it.store.min_physical_offset == expected["minPhyOffset"]
        assert it.store.max_physical_offset == expected["maxPhyOffset"] == golden.end
        for entry in filter(is_ours, expected["offsets"]):
            key = entry["topic"], entry["queueId"]
            assert (it.store.min_offset(*key) or 0) == entry["min"], key
            assert (it.store.max_offset(*key) or 0) == entry["max"], key
            assert (it.store.earliest_store_time(*key) or -1) == entry["earliestStoreTime"], key


def test_units(golden: Golden) -> None:
    """Every unit is as in the manifest; units without a record are removed, records without a unit get one."""
    with opened(golden.root) as it:
        for queue in golden.manifest["consumeQueues"]:
            key = queue["topic"], queue["queueId"]
            ours = it.store.queues.get(*key)
            assert ours is not None
            whole = [tuple(entry) for entry in queue["entries"] if entry[0] < golden.end]
            units = [ours.unit(offset) for offset in range(queue["minOffset"], ours.end)]
            assert units[: len(whole)] == whole, key
            added = [(unit[0], unit[1]) for unit in units[len(whole) :] if unit is not None]
            undispatched = [
                (record["physicalOffset"], record["size"])
                for record in golden.records
                if (record["topic"], record["queueId"]) == key and record["queueOffset"] >= queue["maxOffset"]
            ]
            assert added == undispatched, key


def test_offsets_by_time(golden: Golden) -> None:
    """Times are mapped to the same offsets as in RocketMQ 5.3.3, for both boundaries."""
    with opened(golden.root) as it:
        for entry in filter(is_ours, golden.expected["offsetByTime"]):
            key = entry["topic"], entry["queueId"]
            for timestamp, lower, upper in entry["answers"]:
                assert it.store.offset_by_time(*key, timestamp) == lower, (key, timestamp)
                assert it.store.offset_by_time(*key, timestamp, Boundary.UPPER) == upper, (key, timestamp)


def test_gets(golden: Golden) -> None:
    """Status, next offset, bounds and records of every get are the same as in RocketMQ."""
    with opened(golden.root) as it:
        for entry in filter(is_ours, golden.expected["getMessage"]):
            result = it.store.get(entry["topic"], entry["queueId"], entry["queueOffset"], entry["maxMsgNums"])
            answer = {
                "status": result.status.name,
                "nextBeginOffset": result.next_begin_offset,
                "minOffset": result.min_offset,
                "maxOffset": result.max_offset,
                "offsets": [record.physical_offset for record in records_of(result)],
            }
            assert answer == {name: entry[name] for name in answer}, entry


def test_records(golden: Golden) -> None:
    """Every record is found at its offset, field by field, and none at the next byte."""
    with opened(golden.root) as it:
        for record in golden.records:
            data = it.store.record_at(record["physicalOffset"])
            assert data is not None
            found = parse(memoryview(data))
            assert isinstance(found, Record)
            assert described(found, record) == record
            assert it.store.record_at(record["physicalOffset"] + 1) is None


@pytest.mark.parametrize(("version", "name"), STOPPED)
def test_opening_changes_nothing(version: str, name: str, tmp_path: Path) -> None:
    """A store that is opened and stopped again has the same log and queues, byte for byte."""
    root, _ = golden_store(version, name, tmp_path)
    before = contents(root)
    with opened(root) as it:
        assert it.recovered.cleared_bytes == it.recovered.removed_units == 0
    assert contents(root) == before
    assert not (root / "abort").exists()


def contents(root: Path) -> dict[str, bytes]:
    files = [path for kind in ("commitlog", "consumequeue") for path in (root / kind).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize(("version", "name"), WHOLE)
def test_rebuilt_queues_equal_rocketmqs(version: str, name: str, tmp_path: Path) -> None:
    """After a crash that lost all queues, the rebuilt queues equal those that RocketMQ wrote."""
    root, _ = golden_store(version, name, tmp_path)
    before = contents(root)
    for path in sorted((root / "consumequeue").rglob("*"), reverse=True):
        light = "%LMQ%" in str(path)
        if not light and path.is_file():
            path.unlink()
        elif not light:
            path.rmdir()
    (root / "abort").write_bytes(b"1")
    (root / "checkpoint").unlink()
    with opened(root):
        pass
    assert contents(root) == before
