"""Dumped records equal those of the manifest, and can be selected."""

from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.fsck.dump import DumpedRecord, Selection, dump
from tests.harness.golden_stores import GOLDEN_STORES, Golden, golden_store


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    return golden_store("4.9.8", "crashed", tmp_path)


def as_in_the_manifest(record: DumpedRecord) -> dict[str, Any]:
    return {
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "tags": record.tags,
        "keys": record.keys,
        "uniqKey": record.uniq_key,
        "otherProperties": record.properties,
        "bodyLength": record.body_size,
        "bornTimestamp": record.born_time,
        "storeTimestamp": record.store_time,
        "reconsumeTimes": record.reconsume_times,
    }


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES, ids=map("-".join, GOLDEN_STORES))
def test_every_record_of_the_manifest(tmp_path: Path, version: str, name: str) -> None:
    """All records are dumped in the order of the log, field by field, also if the log ends in a torn one."""
    golden = golden_store(version, name, tmp_path)
    found = [as_in_the_manifest(record) for record in dump(golden.root, Selection())]
    assert found == [{key: record.get(key) for key in found[0]} for record in golden.records]


def test_one_queue_from_an_offset(golden: Golden) -> None:
    """With topic and queue, `first` is a queue offset."""
    selection = Selection(topic="FixtureEvents", queue_id=0, first=95)
    offsets = [record.queue_offset for record in dump(golden.root, selection)]
    assert offsets == list(range(95, 102))


def test_a_queue_whose_units_are_lost(golden: Golden) -> None:
    """Without its unit a record is searched in the whole log."""
    for path in (golden.root / "consumequeue" / "FixtureEvents" / "0").iterdir():
        path.unlink()
    selection = Selection(topic="FixtureEvents", queue_id=0, first=95)
    assert [record.queue_offset for record in dump(golden.root, selection)] == list(range(95, 102))


def test_a_topic_and_a_log_offset(golden: Golden) -> None:
    """Without a queue, `first` is a byte of the log, which may lie within a record."""
    of_topic = [record["physicalOffset"] for record in golden.records if record["topic"] == "FixtureOrders"]
    assert [record.physical_offset for record in dump(golden.root, Selection(topic="FixtureOrders"))] == of_topic
    behind = [record["physicalOffset"] for record in golden.records if record["physicalOffset"] > of_topic[3]]
    found = dump(golden.root, Selection(first=of_topic[3] + 1))
    assert [record.physical_offset for record in found] == behind


def test_bodies_are_inflated_and_truncated(golden: Golden) -> None:
    """A compressed body is dumped as text, and of every body only its beginning."""
    records = list(dump(golden.root, Selection(topic="FixtureBulk")))
    compressed = [record for record in records if record.sys_flag & 1]
    assert compressed
    assert all(len(record.body) == 80 and record.body.isprintable() for record in compressed)
    assert max(len(record.body) for record in dump(golden.root, Selection())) == 80
