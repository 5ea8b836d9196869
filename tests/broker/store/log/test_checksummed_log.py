"""Record checksums: `enabledAppendPropCRC` adds RocketMQ's checksum to records, `forceVerifyPropCRC` requires it."""

import asyncio
from pathlib import Path
from typing import Any

from skylarkmq.broker.processors.send.fast_batches import FastPathBatches
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol import compiled, record
from skylarkmq.protocol.message import BatchRecord, encode_batch
from skylarkmq.protocol.record import MAX_PROPERTIES_BYTES, Record, iterate
from skylarkmq.protocol.record_checksum import SIZE, fill_checksum, has_valid_checksum, with_checksum_space
from tests.harness.stores import BORN_HOST, Opened, message, opened, unpack_golden


def records_in(log: Path) -> list[Record]:
    return [found for found in iterate(log.read_bytes()) if isinstance(found, Record)]


def log_of(root: Path) -> Path:
    return root / "commitlog" / ("0" * 20)


def test_every_record_has_a_valid_checksum(tmp_path: Path) -> None:
    """Single messages, batches and rolled batches have one; a client's own checksum property is removed."""
    with opened(tmp_path, enabled_append_prop_crc=True) as it:
        it.put(message(b"one", tag="A"), message(b"two", properties=b"__CRC32#\x01mine\x02A\x01b"))
        it.store.put_batch([message(b"x" * 30_000), message(b"y" * 20_000)])
        it.store.put_alike([message(b"z" * 30_000), message(b"")])
        assert len(it.store.commit()) == 4
        assert [len(body) for body in it.bodies()] == [3, 3, 30_000, 20_000, 30_000, 0]
    logs = sorted((tmp_path / "commitlog").iterdir())
    found = [one for log in logs for one in records_in(log)]
    assert len(found) == 6
    assert all(map(has_valid_checksum, found))
    assert found[1].properties[:-SIZE] == b"A\x01b\x02"


def test_properties_must_leave_space_for_the_checksum(tmp_path: Path) -> None:
    """Properties that are too long together with the checksum are refused as too long."""
    with opened(tmp_path, enabled_append_prop_crc=True) as it:
        fits, long = b"A\x01" + b"b" * (MAX_PROPERTIES_BYTES - SIZE - 3), b"A\x01" + b"b" * (MAX_PROPERTIES_BYTES - 22)
        appends = it.put(message(properties=fits + b"\x02"), message(properties=long + b"\x02"))
        assert [append.status for append in appends] == [PutStatus.PUT_OK, PutStatus.PROPERTIES_SIZE_EXCEEDED]


def test_forced_verification_in_recovery(tmp_path: Path) -> None:
    """With forceVerifyPropCRC the log ends at a flipped bit outside the body, and at a record without a checksum."""
    it = Opened(tmp_path, enabled_append_prop_crc=True)
    appends = it.put(*(message(b"body", tag="A") for _ in range(5)))
    it.crash()
    flipped = appends[3].physical_offset + appends[3].size - SIZE - 3  # in its tag
    with log_of(tmp_path).open("r+b") as log:
        log.seek(flipped)
        log.write(b"\x7f")
    with opened(tmp_path, force_verify_prop_crc=True) as again:
        assert (again.recovered.records, again.recovered.reason) == (3, "record checksum")
        again.put(message(b"plain"))
        again.crash()
    with opened(tmp_path, force_verify_prop_crc=True) as again:
        assert again.recovered.records == 3
        again.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"body"] * 3


def test_golden_records_are_reproduced(tmp_path: Path) -> None:
    """Every record of a real store with checksums, encoded again from its fields, has the same bytes."""
    log = log_of(unpack_golden("5.3.3", tmp_path, "crc"))
    found = records_in(log)
    assert found
    for one in found:
        whole = record.encode(
            topic=one.topic,
            body=one.body,
            properties=with_checksum_space(one.properties),
            queue_id=one.queue_id,
            queue_offset=one.queue_offset,
            physical_offset=one.physical_offset,
            born_timestamp=one.born_timestamp,
            born_host=one.born_host,
            store_timestamp=one.store_timestamp,
            store_host=one.store_host,
            flag=one.flag,
            sys_flag=one.sys_flag,
            reconsume_times=one.reconsume_times,
            prepared_transaction_offset=one.prepared_transaction_offset,
        )
        assert fill_checksum([whole]) == bytes(one.source[one.position : one.position + one.size])


COMPILED_BATCH: Any = compiled.load("batch")


async def test_index_keys_are_those_of_the_sent_message(tmp_path: Path) -> None:
    """The removal of a client's own checksum property moves its keys; queries still find them."""
    sent = b"__CRC32#\x01" + b"9" * 200 + b"\x02KEYS\x01k1 k2\x02UNIQ_KEY\x017F0000010001AB\x02"
    batch = encode_batch([BatchRecord(0, b"body", sent)])
    made: Any = FastPathBatches(b"") if COMPILED_BATCH is None else COMPILED_BATCH.Batches(PutStatus.PENDING, b"")
    with opened(tmp_path, loop=asyncio.get_running_loop(), enabled_append_prop_crc=True) as it:
        for put in (it.store.put_batch, it.store.put_alike, lambda appends: it.store.put(*appends)):
            (append,) = made.appends(batch, (), "T", 0, 0, 0, BORN_HOST, 0)
            put([append])
            it.store.commit()
            assert append.properties[:-SIZE] == sent[sent.index(b"KEYS") :]
            assert append.keys == [b"7F0000010001AB", b"k1", b"k2"]
        for key in ("7F0000010001AB", "k1", "k2"):
            assert len((await it.store.query_by_key("T", key, 9, 0, 1 << 62)).records) == 3
