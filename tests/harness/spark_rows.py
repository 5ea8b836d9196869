"""The expected row of the Arrow readers and Spark sources for a message as protocol.record decodes it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import PayloadError
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import Record, to_message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(message: MessageExt, broker_name: str | None, *, include_properties: bool = False) -> dict[str, Any]:
    """Return the row's values by column, as `pyarrow.RecordBatch.to_pylist` does, but with the map as a dict."""
    keys = message.properties.get("KEYS")
    row = {
        "key": next(filter(None, (keys or "").split(" ")), None),
        "body": payload_of(message),
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": time_of(message.store_timestamp),
        "bornTimestamp": time_of(message.born_timestamp),
        "tags": message.properties.get("TAGS"),
        "keys": keys,
        "msgId": message.msg_id,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
    }
    return row | {"properties": message.properties} if include_properties else row


def whole_row_of(record: Record, broker_name: str | None, *, decode: bool = True) -> dict[str, Any]:
    """Return the values of all columns; `decode` False: body and properties as stored."""
    message = to_message(record)
    row = row_of(message, broker_name, include_properties=True) | {
        "physicalOffset": record.physical_offset,
        "bornHost": host_text(*message.born_host),
        "storeHost": host_text(*message.store_host),
        "sysFlag": record.sys_flag,
        "bodyCrc": record.body_crc,
        "preparedTransactionOffset": record.prepared_transaction_offset,
    }
    stored = {"body": bytes(record.body), "properties": record.properties.decode("utf-8", "replace")}
    return row if decode else row | stored


def host_text(address: str, port: int) -> str:
    """Return `address:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def payload_of(message: MessageExt) -> bytes | None:
    """Return the decompressed body; None if it cannot be decompressed."""
    codec = {SysFlag.COMPRESSION_LZ4: "lz4", SysFlag.COMPRESSION_ZSTD: "zstd"}
    kind = message.sys_flag & SysFlag.COMPRESSION_TYPE_MASK
    try:
        if message.sys_flag & SysFlag.COMPRESSED and kind in codec:  # these do not depend on installed modules
            payload: bytes = pa.input_stream(pa.py_buffer(message.body), compression=codec[kind]).read()
            return payload
        return message.payload()
    except (PayloadError, OSError, pa.ArrowInvalid):
        return None


def time_of(milliseconds: int) -> datetime | None:
    """Return the time; None beyond the years that Python supports."""
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a record batch in the same form."""
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        if isinstance(row.get("properties"), list):
            names = [name for name, _ in row["properties"]]
            assert len(set(names)) == len(names), names
            row["properties"] = dict(row["properties"])
    return rows
