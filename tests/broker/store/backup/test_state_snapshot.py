"""What a backup notes about queues whose messages have expired, and about data that it does not contain."""

import os
from pathlib import Path

from skylarkmq.broker.store.backup.state_snapshot import queue_end, read_state
from skylarkmq.broker.store.fsck.findings import Findings, Severity
from skylarkmq.broker.store.fsck.queue_files import QueueOnDisk
from skylarkmq.protocol.disk import FILLER_UNIT, UNIT, offset_file_name
from tests.harness.golden_stores import golden_store
from tests.harness.stores import QUEUE_SEGMENT_BYTES


def queue(root: Path, topic: str, start: int, units: bytes) -> None:
    directory = root / "consumequeue" / topic / "0"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / offset_file_name(start * 20)).write_bytes(units.ljust(QUEUE_SEGMENT_BYTES, b"\0"))


def test_the_ends_of_queues_without_records_are_noted(tmp_path: Path) -> None:
    """The last unit counts: its record expired, or it is a filler. Empty last files are passed over."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / offset_file_name(4096)).write_bytes(bytes(4096))
    old, present = UNIT.pack(4000, 96, 0), UNIT.pack(4096, 96, 0)
    queue(tmp_path, "Old", 20, old * 7)
    queue(tmp_path, "Full", 0, old * 20)
    queue(tmp_path, "Full", 20, b"")
    queue(tmp_path, "Filled", 40, FILLER_UNIT * 3)
    queue(tmp_path, "Present", 0, old * 3 + present)
    queue(tmp_path, "Empty", 0, b"")
    queue(tmp_path, "%LMQ%light", 0, old)
    queue(tmp_path, "in valid", 0, old)
    state = read_state(tmp_path)
    assert state.queue_ends == {"Filled": {0: 43}, "Full": {0: 20}, "Old": {0: 27}}
    assert state.warnings == ["light queues (%LMQ%...) are not part of a backup"]


def test_the_end_of_a_queue_is_that_of_a_full_check(tmp_path: Path) -> None:
    """For every queue of a store that RocketMQ wrote."""
    root = golden_store("4.9.8", "trimmed", tmp_path).root
    queues = [path for path in (root / "consumequeue").glob("*/*") if path.is_dir()]
    assert len(queues) > 10
    for path in queues:
        size = next(path.iterdir()).stat().st_size
        expected = QueueOnDisk(root, path.parent.name, int(path.name), size)
        expected.check(Findings(), Severity.NOTE)
        assert queue_end(root, str(path.relative_to(root))) == expected.end


def test_data_of_rocketmq_that_is_not_copied_is_named(tmp_path: Path) -> None:
    root = golden_store("5.3.3", "clean", tmp_path).root
    assert read_state(root).warnings == [
        "batchconsumequeue/ is not part of a backup",
        "compaction/ is not part of a backup",
        "light queues (%LMQ%...) are not part of a backup",
    ]


def test_files_whose_names_the_manifest_cannot_contain_are_named(tmp_path: Path) -> None:
    """Names of files are bytes, and the manifest is JSON."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text("{}")
    (config / os.fsdecode(b"\xff\n")).write_text("x")
    (config / "ä\x1b").write_text("y")
    state = read_state(tmp_path)
    assert sorted(state.files) == ["topics.json", "ä\x1b"]
    assert state.warnings == [f"{config}/'\\udcff\\n' is not part of a backup: its name is not UTF-8"]
