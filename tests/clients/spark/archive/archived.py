"""Archives a store in this process, and reads the archive as any reader of Parquet does: all files in `messages`."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA, SORT_COLUMNS
from skylarkmq.clients.spark.archive.directory import ArchiveDirectory, Entry
from skylarkmq.clients.spark.archive.job import ArchiveSettings, Summary, opened_job
from skylarkmq.clients.spark.archive.runners import LocalRunner
from skylarkmq.protocol.archive_mark import ArchiveMark, decode_mark
from skylarkmq.protocol.record import Record, to_message
from tests.harness.golden_stores import host_text
from tests.harness.spark_rows import time_of

BROKER = "broker-a"


def settings_of(store: Path, archive: Path | str, **changes: Any) -> ArchiveSettings:
    """Return settings that archive messages of any age, in whole segments."""
    (store / "config").mkdir(exist_ok=True)  # a broker creates it
    values: dict[str, Any] = {"older_than_ms": 0, "broker_name": BROKER, "log_directories": (store / "commitlog",)}
    return ArchiveSettings(store=store, archive=str(archive), **(values | changes))


def archive(store: Path, target: Path | str, **changes: Any) -> Summary:
    """Run the job once, in this process."""
    with opened_job(settings_of(store, target, **changes)) as job:
        return job.run(LocalRunner(1), lambda entry: None)


def rows(target: Path, broker_name: str = BROKER) -> list[dict[str, Any]]:
    """Return the rows of all files, in the order of the log. Each file must have the schema, and be sorted."""
    found = []
    for path in sorted((target / "messages" / broker_name).glob("*.parquet")):
        table = pq.read_table(path)
        assert table.schema.equals(ARCHIVE_SCHEMA)
        keys = list(zip(*(table[name].to_pylist() for name in SORT_COLUMNS), strict=True))
        assert keys == sorted(keys)
        found += table.to_pylist()
    return sorted(found, key=lambda row: int(row["physicalOffset"]))


def entries(target: Path, broker_name: str = BROKER) -> list[Entry]:
    """Return the manifest."""
    return ArchiveDirectory(str(target), broker_name).entries()


def mark(store: Path) -> ArchiveMark:
    """Return the archive mark of a store."""
    return decode_mark((store / "config" / "archive.json").read_bytes())


def row_of(record: Record, *, readable: bool = True, broker_name: str = BROKER) -> dict[str, Any]:
    """Return the row of a record, as protocol.record decodes it."""
    message = to_message(record)
    keys = message.properties.get("KEYS")
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeTimestamp": time_of(record.store_timestamp),
        "bornTimestamp": time_of(record.born_timestamp),
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "key": next(filter(None, (keys or "").split(" ")), None),
        "tags": message.properties.get("TAGS"),
        "keys": keys,
        "msgId": message.msg_id,
        "properties": record.properties.decode("utf-8", "replace"),
        "body": bytes(record.body),
        "readable": readable,
    }
