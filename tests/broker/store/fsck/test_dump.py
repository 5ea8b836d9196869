"""Records as a dump shows them: those of the manifest, selected."""

from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.fsck.dump import DumpedRecord, Selection, dump
from tests.harness.golden_stores import GOLDEN_STORES, Golden, golden_store


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    return golden_store("4.9.8", "crashed", tmp_path)


def in_the_manifests_words(shown: DumpedRecord) -> dict[str, Any]:
    return {
        "physicalOffset": shown.physical_offset,
        "size": shown.size,
        "topic": shown.topic,
        "queueId": shown.queue_id,
        "queueOffset": shown.queue_offset,
        "sysFlag": shown.sys_flag,
        "flag": shown.flag,
        "tags": shown.tags,
        "keys": shown.keys,
        "uniqKey": shown.uniq_key,
        "otherProperties": shown.properties,
        "bodyLength": shown.body_size,
        "bornTimestamp": shown.born_time,
        "storeTimestamp": shown.store_time,
        "reconsumeTimes": shown.reconsume_times,
    }


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES, ids=map("-".join, GOLDEN_STORES))
def test_every_record_of_the_manifest(tmp_path: Path, version: str, name: str) -> None:
    """All records in the order of the log, field by field, also where the log ends in a torn one."""
    golden = golden_store(version, name, tmp_path)
    shown = [in_the_manifests_words(record) for record in dump(golden.root, Selection())]
    assert shown == [{key: record.get(key) for key in shown[0]} for record in golden.records]


def test_one_queue_from_an_offset(golden: Golden) -> None:
    """With topic and queue, `first` is a queue offset."""
    selection = Selection(topic="FixtureEvents", queue_id=0, first=95)
    offsets = [record.queue_offset for record in dump(golden.root, selection)]
    assert offsets == list(range(95, 102))


def test_a_queue_whose_units_are_lost(golden: Golden) -> None:
    """Without its unit a record is looked for in the whole log."""
    for path in (golden.root / "consumequeue" / "FixtureEvents" / "0").iterdir():
        path.unlink()
    selection = Selection(topic="FixtureEvents", queue_id=0, first=95)
    assert [record.queue_offset for record in dump(golden.root, selection)] == list(range(95, 102))


def test_a_topic_and_a_place_in_the_log(golden: Golden) -> None:
    """Without a queue, `first` is a byte of the log, in the middle of a record too."""
    of_topic = [record["physicalOffset"] for record in golden.records if record["topic"] == "FixtureOrders"]
    assert [record.physical_offset for record in dump(golden.root, Selection(topic="FixtureOrders"))] == of_topic
    behind = [record["physicalOffset"] for record in golden.records if record["physicalOffset"] > of_topic[3]]
    shown = dump(golden.root, Selection(first=of_topic[3] + 1))
    assert [record.physical_offset for record in shown] == behind


def test_bodies_are_inflated_and_cut(golden: Golden) -> None:
    """A compressed body shows its text, and no body more than its beginning."""
    records = list(dump(golden.root, Selection(topic="FixtureBulk")))
    compressed = [record for record in records if record.sys_flag & 1]
    assert compressed
    assert all(len(record.body) == 80 and record.body.isprintable() for record in compressed)
    assert max(len(record.body) for record in dump(golden.root, Selection())) == 80
