"""`scan_store`: columns, filters, bounds, errors, and the release of files."""

import gc
import logging
import os
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skylarkmq.arrow import DEFAULT_COLUMNS, RECORD_COLUMNS, TYPES, StoreUnreadable, scan_store
from skylarkmq.clients.arrow.store import reading
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.message import tags_code
from skylarkmq.protocol.message_id import cached_host
from skylarkmq.protocol.record import Record, to_message
from tests.clients.arrow.store.stored_rows import everything
from tests.harness.stores import message, opened

START_MS = 1_700_000_000_000
COUNT = 300


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store over several segments: 300 messages of three topics, 10 ms apart, every tenth one compressed."""
    path = tmp_path_factory.mktemp("store")
    with opened(path) as store:
        for number in range(COUNT):
            store.clock.now_ms = START_MS + 10 * number
            is_compressed = number % 10 == 0
            body = b"%d " % number * 100
            store.put(
                message(
                    zlib.compress(body) if is_compressed else body,
                    f"T{number % 3}",
                    number % 2,
                    properties=b"KEYS\x01k%d all\x02TAGS\x01t%d\x02UNIQ_KEY\x01U%d\x02" % (number, number % 4, number),
                    tags_code=tags_code(f"t{number % 4}"),
                    sys_flag=SysFlag.COMPRESSED if is_compressed else 0,
                )
            )
    return path


def numbers(reader: pa.RecordBatchReader) -> list[int]:
    """Return the number of each message, from its key."""
    return [int(key[1:]) for key in reader.read_all()["key"].to_pylist()]


def open_files(root: Path) -> list[str]:
    """Return the files of the store that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return [path for path in found if path.startswith(str(root))]


def test_the_default_columns_are_those_of_the_spark_source(root: Path) -> None:
    """The messages in the order of the log, with decompressed bodies."""
    table = scan_store(root, broker_name="b").read_all()
    assert table.schema.names == list(DEFAULT_COLUMNS)
    assert table["body"].to_pylist() == [b"%d " % number * 100 for number in range(COUNT)]
    assert set(table["brokerName"].to_pylist()) == {"b"}


def test_all_fields_of_a_record_are_columns(root: Path) -> None:
    """Each value equals the field of the record; body and properties are as stored."""
    rows = scan_store(root, columns=RECORD_COLUMNS, decode=False).read_all().to_pylist()
    assert rows == [fields_of(record) for record in everything(root)]


def fields_of(record: Record) -> dict[str, Any]:
    one = to_message(record)
    ip, port = cached_host(record.born_host)
    store_ip, store_port = cached_host(record.store_host)
    return {
        "topic": record.topic,
        "brokerName": None,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeTimestamp": datetime.fromtimestamp(record.store_timestamp / 1000, UTC),
        "bornTimestamp": datetime.fromtimestamp(record.born_timestamp / 1000, UTC),
        "bornHost": f"{ip}:{port}",
        "storeHost": f"{store_ip}:{store_port}",
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "tags": one.properties["TAGS"],
        "keys": one.properties["KEYS"],
        "msgId": one.msg_id,
        "properties": record.properties.decode(),
        "body": bytes(record.body),
    }


def test_columns_are_returned_in_the_given_order(root: Path) -> None:
    """Every column alone has the values of all columns together."""
    everything_ = scan_store(root, columns=TYPES).read_all()
    for name in TYPES:
        assert scan_store(root, columns=[name]).read_all() == everything_.select([name]), name
    assert scan_store(root, columns=["tags", "key"]).schema.names == ["tags", "key"]


def test_a_column_that_is_not_named_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bodies are neither copied nor decompressed: a damaged one is noticed only if the column is wanted."""
    with opened(tmp_path) as store:
        for _ in range(50):
            store.put(message(b"no zlib" * 100, sys_flag=SysFlag.COMPRESSED))
    assert scan_store(tmp_path, columns=["queueOffset"]).read_all().nbytes < 1000
    assert "cannot be decompressed" not in caplog.text
    assert scan_store(tmp_path, columns=["body"], decode=False).read_all()["body"][0].as_py() == b"no zlib" * 100
    assert "cannot be decompressed" not in caplog.text
    assert scan_store(tmp_path, columns=["body"]).read_all()["body"].null_count == 50
    assert "cannot be decompressed" in caplog.text


def test_topics_times_and_a_key_select_messages(root: Path) -> None:
    """The bounds are those of the offline source: start inclusive, end exclusive."""
    start = datetime.fromtimestamp(START_MS / 1000, UTC)
    assert numbers(scan_store(root, topics="T1")) == list(range(1, COUNT, 3))
    assert numbers(scan_store(root, topics=["T1", "T2"])) == [n for n in range(COUNT) if n % 3]
    between: dict[str, Any] = {"start": start + timedelta(milliseconds=500), "end": start + timedelta(seconds=1)}
    assert numbers(scan_store(root, **between)) == list(range(50, 100))
    assert numbers(scan_store(root, start=start + timedelta(microseconds=500_001), end=START_MS + 520)) == [51]
    assert numbers(scan_store(root, key="k7", max_hash_slot_num=100, max_index_num=200)) == [7]
    assert numbers(scan_store(root, key="U8", use_index=False)) == [8]


def test_queues_are_returned_one_after_the_other(root: Path) -> None:
    """Within a queue, offsets ascend."""
    rows = scan_store(root, order="queue", columns=["topic", "queueId", "queueOffset"]).read_all().to_pylist()
    assert len(rows) == COUNT
    assert rows == sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (pc.field("tags") == "t3", lambda n: n % 4 == 3),
        ((pc.field("queueId") == 1) & pc.field("topic").isin(["T0", "T2"]), lambda n: n % 2 == 1 and n % 3 != 1),
        (pc.binary_length(pc.field("body")) == 200, lambda n: n < 10),
        (pc.field("storeTimestamp") < datetime.fromtimestamp(START_MS / 1000 + 0.2, UTC), lambda n: n < 20),
        (pc.field("key").is_null(), lambda n: False),
    ],
    ids=["tags", "queue and topic", "body", "time", "null"],
)
def test_a_filter_selects_rows_by_any_columns(
    root: Path, expression: pc.Expression, matches: Callable[[int], bool]
) -> None:
    """The filter may refer to columns that are not returned."""
    assert numbers(scan_store(root, columns=["key"], filter=expression)) == [n for n in range(COUNT) if matches(n)]


def test_files_are_closed_after_the_last_batch(root: Path) -> None:
    """The reader itself is still referenced."""
    reader = scan_store(root)
    assert sum(batch.num_rows for batch in reader) == COUNT
    assert not open_files(root)


def test_files_are_closed_when_the_reader_is_closed(root: Path) -> None:
    """Explicitly, or at the end of a with block; a closed reader returns nothing more."""
    reader = scan_store(root)
    reader.read_next_batch()
    assert open_files(root)
    reader.close()
    assert not open_files(root)
    with pytest.raises(pa.ArrowInvalid, match="closed"):
        reader.read_next_batch()
    with scan_store(root) as other:
        other.read_next_batch()
        assert open_files(root)
    assert not open_files(root)


def test_files_are_closed_when_the_reader_is_collected(root: Path) -> None:
    """Without a reference to the reader, its files are closed."""
    reader = scan_store(root)
    reader.read_next_batch()
    assert open_files(root)
    del reader
    gc.collect()
    assert not open_files(root)


def test_memory_does_not_grow_with_the_log(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers hold a window and a batch, however long the log is."""
    monkeypatch.setattr(reading, "WINDOW_BYTES", 16_384)
    reader = scan_store(root, columns=["body"])
    tracemalloc.start()
    try:
        size = sum(batch.nbytes for batch in reader)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 80_000
    assert peak < 200_000


def test_errors_of_the_call_have_their_own_type(root: Path, tmp_path: Path) -> None:
    """Nothing is returned for a directory that is no store, or for wrong arguments."""
    with pytest.raises(StoreUnreadable, match="is not a store"):
        scan_store(tmp_path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"columns": ["bodi"]}, "no column bodi: did you mean body"),
        ({"columns": []}, "at least one column"),
        ({"columns": "body"}, "columns must be a list of names"),
        ({"columns": ["key", "key"]}, "named twice"),
        ({"topics": []}, "topics must contain at least one name"),
        ({"start": datetime(2026, 1, 1)}, "start must have a time zone"),  # noqa: DTZ001
        ({"end": -1}, "end must not be negative"),
        ({"order": "time"}, "order must be log or queue"),
        ({"filter": pc.field("tag") == "a"}, "does not fit the columns"),
        ({"filter": pc.field("queueId") == "a"}, "does not fit the columns"),
        ({"filter": pc.field("queueId")}, "does not fit the columns"),
        ({"filter": pc.scalar(True)}, "refers to no column"),
    ]
    for arguments, text in wrong:
        with pytest.raises(ValueError, match=text):
            scan_store(root, **arguments)


def test_damage_ends_the_stream_with_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The text contains type, position and remedy; with fail_on_data_loss=False only the damaged record is missing."""
    with opened(tmp_path) as store:
        for number in range(20):
            store.put(message(b"%d" % number))
    damaged = everything(tmp_path)[10]
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(damaged.physical_offset + 4)
        file.write(bytes(4))
    text = rf"StoreUnreadable.*byte {damaged.physical_offset} of the log.*failOnDataLoss=false"
    with pytest.raises(OSError, match=text):
        scan_store(tmp_path).read_all()
    assert not open_files(tmp_path)
    with caplog.at_level(logging.WARNING):
        bodies = scan_store(tmp_path, columns=["body"], fail_on_data_loss=False).read_all()["body"].to_pylist()
    assert bodies == [b"%d" % number for number in range(20) if number != 10]
