"""Stores that RocketMQ wrote, opened by ours: every offset, time and get answers as RocketMQ itself answers."""

from pathlib import Path
from typing import Any

import pytest

from broker.store.offset_by_time import Boundary
from tests.harness.stores import golden_manifest, opened, records_of, unpack_golden

STORES = [("4.9.8", "expectedBy5.3.3"), ("5.3.3", "expected")]


@pytest.fixture(params=STORES, ids=[version for version, _ in STORES])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    version, expected = request.param
    manifest = golden_manifest(version)
    return unpack_golden(version, tmp_path), manifest, manifest[expected]


def is_ours(entry: dict[str, Any]) -> bool:
    """Batch queues are another kind of queue, which this store does not read."""
    return not entry["topic"].startswith("FixtureBatchCQ")


def test_end_and_offsets(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """The log ends where it ended; every queue has its min, max and earliest store time."""
    root, _, expected = golden
    with opened(root) as it:
        assert it.store.max_physical_offset == expected["maxPhyOffset"]
        assert it.recovered.cleared_bytes == it.recovered.removed_units == 0
        for entry in filter(is_ours, expected["offsets"]):
            key = entry["topic"], entry["queueId"]
            assert (it.store.min_offset(*key) or 0) == entry["min"], key
            assert (it.store.max_offset(*key) or 0) == entry["max"], key
            assert (it.store.earliest_store_time(*key) or -1) == entry["earliestStoreTime"], key


def test_units(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """Every unit of every queue reads as the manifest lists it."""
    root, manifest, _ = golden
    with opened(root) as it:
        for queue in manifest["consumeQueues"]:
            ours = it.store._queues.get(queue["topic"], queue["queueId"])
            assert ours is not None
            units = [ours.unit(offset) for offset in range(queue["minOffset"], queue["maxOffset"])]
            assert units == [tuple(entry) for entry in queue["entries"]]


def test_offsets_by_time(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """Times lead to the offsets that RocketMQ 5.3.3 gives, on both boundaries."""
    root, _, expected = golden
    with opened(root) as it:
        for entry in filter(is_ours, expected["offsetByTime"]):
            key = entry["topic"], entry["queueId"]
            for timestamp, lower, upper in entry["answers"]:
                assert it.store.offset_by_time(*key, timestamp) == lower, (key, timestamp)
                assert it.store.offset_by_time(*key, timestamp, Boundary.UPPER) == upper, (key, timestamp)


def test_gets(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """Status, next offset, bounds and records of every get are RocketMQ's."""
    root, _, expected = golden
    with opened(root) as it:
        for entry in filter(is_ours, expected["getMessage"]):
            result = it.store.get(entry["topic"], entry["queueId"], entry["queueOffset"], entry["maxMsgNums"])
            answer = {
                "status": result.status.name,
                "nextBeginOffset": result.next_begin_offset,
                "minOffset": result.min_offset,
                "maxOffset": result.max_offset,
                "offsets": [record.physical_offset for record in records_of(result)],
            }
            assert answer == {name: entry[name] for name in answer}, entry


def test_records(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """Every record is found at its offset, and nothing is found beside one."""
    root, manifest, _ = golden
    with opened(root) as it:
        for record in manifest["commitLog"]["records"]:
            found = it.store.record_at(record["physicalOffset"])
            assert found is not None
            assert len(found) == record["size"]
            assert it.store.record_at(record["physicalOffset"] + 1) is None


def test_opening_changes_nothing(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """A clean store that is opened and stopped again has the same log and queues, byte for byte."""
    root, _, _ = golden
    before = contents(root)
    with opened(root):
        pass
    assert contents(root) == before
    assert not (root / "abort").exists()


def contents(root: Path) -> dict[str, bytes]:
    files = [path for kind in ("commitlog", "consumequeue") for path in (root / kind).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


def test_rebuilt_queues_equal_rocketmqs(golden: tuple[Path, dict[str, Any], dict[str, Any]]) -> None:
    """Queues rebuilt from the log alone, after a crash that lost them all, equal those that RocketMQ wrote."""
    root, _, _ = golden
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
    after = {name: data for name, data in contents(root).items() if "FixtureBatchCQ" not in name}
    assert after == before
