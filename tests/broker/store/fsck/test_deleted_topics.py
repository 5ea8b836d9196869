"""Records of deleted topics need no units, and do not affect a topic that is created again."""

import json
from pathlib import Path

from skylarkmq.broker.store.fsck import Severity
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
