"""Records of deleted topics need no units, and do not affect a topic that is created again."""

import json
from pathlib import Path

from skylarkmq.broker.store.fsck import Finding, Severity
from skylarkmq.broker.store.fsck.findings import Doubts, Findings
from skylarkmq.protocol.disk import UNIT
from tests.harness.store_check import findings_of
from tests.harness.stores import config_of, message, opened


def test_a_deleted_topic_has_no_units_and_a_new_one_begins_at_0(tmp_path: Path) -> None:
    """Records that `config/deletedTopics.json` covers need no unit; later ones do."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(*(message() for _ in range(30)))
        end = it.store.max_physical_offset
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    damage = [found for found in findings_of(tmp_path, config_of(tmp_path)) if found.severity is Severity.DAMAGE]
    assert damage[0].what == "record 0 (T-0@0) is in no queue"
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "deletedTopics.json").write_text(json.dumps({"T": end}))
    assert findings_of(tmp_path, config_of(tmp_path)) == []


def test_a_topic_that_rocketmq_deleted(tmp_path: Path) -> None:
    """A topic without queues that is not in topics.json is a note."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(*(message() for _ in range(3)))
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{}}}')
    (note,) = findings_of(tmp_path, config_of(tmp_path))
    assert (note.severity, note.what) == (
        Severity.NOTE,
        "3 records of T, which is not an existing topic, are in no queue",
    )


async def test_a_topic_that_rocketmq_created_again(tmp_path: Path) -> None:
    """Its queue begins at 0 again; what its earlier records lack is no damage, what later ones lack is."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(*(message() for _ in range(30)))
        await it.store.delete_topic("T")
        it.put(*(message() for _ in range(3)))
    (tmp_path / "config" / "deletedTopics.json").unlink()
    (note,) = findings_of(tmp_path, config_of(tmp_path))
    assert (note.severity, note.what) == (Severity.NOTE, "1 queues of T begin at offset 0 again")
    with next((tmp_path / "consumequeue" / "T" / "0").iterdir()).open("r+b") as file:
        file.seek(20)
        file.write(UNIT.pack(0, 93, 0))
    damage = [found for found in findings_of(tmp_path, config_of(tmp_path)) if found.severity is Severity.DAMAGE]
    assert [found.what.partition(" contains")[0] for found in damage] == ["the unit T-0@1"]


def test_doubts_count_like_findings() -> None:
    """Many of one kind are summed up in the same way, whether they are added at once or one by one."""
    finding = Finding(Severity.DAMAGE, "f", 1, "what", "follows")
    for count in (1, 10, 11, 12, 40):
        direct, late, doubts = Findings(), Findings(), Doubts()
        for _ in range(count):
            direct.add("unit", finding)
            doubts.add("unit", finding)
        doubts.confirm(late)
        assert (late.take(), late.summaries()) == (direct.take(), direct.summaries())
