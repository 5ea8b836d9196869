"""Stores left by a crash of RocketMQ, recovered and stopped here, compared with RocketMQ's own recovery.

`afterRestart` in the manifests is the state after RocketMQ's recovery and clean stop. The differences:

    checkpoint, log       RocketMQ: the last thorough flush; here: the last record, because the stop syncs it first
    checkpoint, confirm   4.9.8 writes none; here, as in 5.3.3: the start of the last record
    torn queue unit       RocketMQ ignores truncated units; here they are cleared, so no unit points after the log
"""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.disk import UNIT, UNIT_SIZE, Checkpoint
from tests.harness.golden_stores import GOLDEN_STORES, Golden, golden_store
from tests.harness.stores import opened

CRASHED = [golden for golden in GOLDEN_STORES if golden[1] in {"crashed", "lagging", "torn"}]


@pytest.fixture(params=GOLDEN_STORES, ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    version, name = request.param
    return golden_store(version, name, tmp_path)


@pytest.fixture
def left(golden: Golden) -> dict[str, Any]:
    """Return the state that RocketMQ left. The store has been opened and stopped here."""
    with opened(golden.root):
        pass
    after: dict[str, Any] = golden.manifest["afterRestart"]
    return after


def test_log_files(golden: Golden, left: dict[str, Any]) -> None:
    """The log has RocketMQ's files, without the next segment, and ends at the same offset, followed by zeros."""
    files = sorted((golden.root / "commitlog").iterdir())
    assert [file.name for file in files] == left["commitLogFiles"]
    at = left["endOfLastRecord"] - int(files[-1].name)
    assert set(files[-1].read_bytes()[at:]) <= {0}
    assert not (golden.root / "abort").exists()


def test_checkpoint(golden: Golden, left: dict[str, Any]) -> None:
    """The checkpoint covers the last record; its index time is that of RocketMQ."""
    checkpoint = Checkpoint.decode((golden.root / "checkpoint").read_bytes())
    last = golden.records[-1]
    assert checkpoint.physic_timestamp == last["storeTimestamp"] >= left["checkpoint"]["physicMsgTimestamp"]
    assert checkpoint.logics_timestamp == left["checkpoint"]["logicsMsgTimestamp"]
    assert checkpoint.index_timestamp == left["checkpoint"]["indexMsgTimestamp"]
    assert checkpoint.confirm_offset == last["physicalOffset"]


def test_units_have_records(golden: Golden, left: dict[str, Any]) -> None:
    """Every unit points at a record, or before the start of the log; zeros follow the units."""
    sizes = {record["physicalOffset"]: record["size"] for record in golden.records}
    units = list(chain.from_iterable(map(units_of, queue_files(golden.root))))
    log_start = int(left["commitLogFiles"][0])
    assert [unit for unit in units if unit[0] >= log_start and sizes.get(unit[0]) != unit[1]] == []
    with_units = {unit[0] for unit in units}
    committed = [
        record for record in golden.records if record["sysFlag"] & 0xC in {0, 8} and not in_batch_queue(record)
    ]
    assert [record for record in committed if record["physicalOffset"] not in with_units] == []


def queue_files(root: Path) -> list[Path]:
    return [path for path in (root / "consumequeue").rglob("*") if path.is_file() and "%LMQ%" not in str(path)]


def units_of(path: Path) -> list[tuple[int, int, int]]:
    data = path.read_bytes()
    units = [UNIT.unpack_from(data, at) for at in range(0, len(data), UNIT_SIZE)]
    count = next((i for i, unit in enumerate(units) if unit[1] <= 0), len(units))
    assert set(data[count * UNIT_SIZE :]) <= {0}, path
    return units[:count]


def in_batch_queue(record: dict[str, Any]) -> bool:
    """Return whether the record's topic has batch queues, which this store neither reads nor rebuilds."""
    return bool(record["topic"] == "FixtureBatchCQ")


@pytest.mark.parametrize(("version", "name"), CRASHED)
def test_a_second_recovery_changes_nothing(version: str, name: str, tmp_path: Path) -> None:
    """After a crash right after its recovery, the store recovers to the same bytes."""
    root = golden_store(version, name, tmp_path).root
    with opened(root):
        pass
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    (root / "abort").write_bytes(b"1")
    with opened(root) as it:
        assert it.recovered.cleared_bytes == it.recovered.removed_units == 0
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
