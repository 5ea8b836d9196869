"""Stores that RocketMQ wrote, archived: exactly the messages that RocketMQ would serve, found without the log."""

import shutil
from itertools import chain, groupby, pairwise
from pathlib import Path

import duckdb
import pytest

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.protocol.record import Record
from tests.clients.arrow.store.stored_rows import everything
from tests.clients.arrow.store.test_stored_golden import served
from tests.clients.spark.archive.archived import archive, entries, row_of, rows
from tests.harness.golden_stores import SOME_GOLDEN_STORES, Golden, golden_store
from tests.harness.rounds import PART
from tests.harness.stores import SEGMENT_BYTES


@pytest.fixture(params=SOME_GOLDEN_STORES, ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    version, name = request.param
    return golden_store(version, name, tmp_path / "store")


def is_crashed(golden: Golden) -> bool:
    return (golden.root / "abort").exists()


def archivable(golden: Golden) -> list[Record]:
    """Return the records that the job archives. Of a store that was not closed these are old ones: in segments before
    one that begins 3 s before the checkpoint, and in the last segment those stored 3 s before it."""
    records = everything(golden.root)
    if not is_crashed(golden):
        return records
    limit_ms = golden.manifest["checkpoint"]["physicMsgTimestamp"] - 3_000
    segments = [list(found) for _, found in groupby(records, lambda record: record.physical_offset // SEGMENT_BYTES)]
    whole = [segment for segment, after in pairwise(segments) if after[0].store_timestamp < limit_ms]
    return [*chain(*whole), *(record for record in segments[-1] if record.store_timestamp < limit_ms)]


def test_everything_in_an_archive_equals_the_log(golden: Golden, tmp_path: Path) -> None:
    """Every record once, with all its fields; `readable` marks those that RocketMQ serves."""
    archive(golden.root, tmp_path / "archive", include_last=True, everything=True)
    readable = {record.physical_offset for record in served(golden)}
    wanted = archivable(golden)
    found = rows(tmp_path / "archive")
    assert found == [row_of(record, readable=record.physical_offset in readable) for record in wanted]
    assert len(found) > 20 or is_crashed(golden)  # a checkpoint may be older than the whole log


def test_duckdb_finds_every_message_by_key_after_the_segments_are_deleted(tmp_path: Path) -> None:
    """A store of RocketMQ 4.9: archived, its log deleted, and the messages of each key compared with RocketMQ's."""
    golden = golden_store("4.9.8", "clean", tmp_path / "store")
    records = served(golden)
    summary = archive(golden.root, tmp_path / "archive", include_last=True)
    assert (summary.messages, summary.mark) == (len(records), golden.end)
    assert summary.left_out == len(everything(golden.root)) - len(records)
    assert [entry.rows for entry in entries(tmp_path / "archive")] != [len(records)]
    wanted: dict[str, list[tuple[object, ...]]] = {}
    for row in map(row_of, records):
        found_by = {*(row["keys"] or "").split(), row["msgId"]}
        for key in found_by:
            wanted.setdefault(key, []).append((row["topic"], row["queueId"], row["queueOffset"], row["body"]))
    shutil.rmtree(golden.root)
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW archive AS FROM read_parquet('{tmp_path}/archive/messages/*/*.parquet')")
        query = "list_contains(string_split(keys, ' '), $1) OR msgId = $1"
        for key, messages in list(wanted.items())[::PART]:
            found = database.execute(
                f"SELECT topic, queueId, queueOffset, body FROM archive WHERE {query} ORDER BY physicalOffset", [key]
            )
            assert found.fetchall() == messages
        probe = f"FROM parquet_bloom_probe('{tmp_path}/archive/messages/*/*.parquet', '%s', 'no such key')"
        for column in ("key", "msgId"):
            groups = database.execute(probe % column).fetchall()
            assert groups
            assert all(is_excluded for *_, is_excluded in groups)
    assert len(wanted) > 100


def test_topics_with_batch_queues_are_refused(tmp_path: Path) -> None:
    """Their messages would be missing in the archive when the segment is deleted."""
    golden = golden_store("5.3.3", "clean", tmp_path / "store")
    with pytest.raises(StoreUnreadable, match=r"FixtureBatchCQ has batch queues .*--everything"):
        archive(golden.root, tmp_path / "archive", include_last=True)
    shutil.rmtree(golden.root / "batchconsumequeue")
    with pytest.raises(StoreUnreadable, match=r"has many messages .*--everything .*--skip-damaged"):
        archive(golden.root, tmp_path / "archive", include_last=True)
    summary = archive(golden.root, tmp_path / "archive", include_last=True, skip_damaged=True)
    assert summary.damaged > 0
    assert summary.messages > 20
