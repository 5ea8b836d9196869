"""Samples of consumer lag: read with GET_CONSUME_STATS (208) of the brokers, appended to a Parquet table.

    <table>/day=2024-05-01/samples-<first sample, ms>-<id>.parquet

A file is written under a name that readers ignore and renamed when it is complete, so readers never see a part of a
sample. Files of one table may come from several processes, and are never changed. All rows of a sample have one time,
the begin of the sample. A group of which a broker does not respond is not in that sample, and is logged.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.codes import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS

MAX_CONCURRENT: Final = 16
SCHEMA: Final = pa.schema(
    [
        ("sampledAt", pa.timestamp("us", tz="UTC")),
        ("consumerGroup", pa.string()),
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("brokerOffset", pa.int64()),
        ("consumerOffset", pa.int64()),
        ("lastConsumedAt", pa.timestamp("us", tz="UTC")),
    ]
)
"""`brokerOffset`: offset of the next message. `consumerOffset`: the committed offset. `lastConsumedAt`: store time of
the last consumed message; null if none was consumed."""

log = logging.getLogger(__name__)


async def sample(admin: Admin, groups: Sequence[str] | None, now: datetime) -> pa.Table:
    """Return a sample of these groups, by default of all but the system's. `now`: the time of the sample.

    Raises ClientError if the groups cannot be listed, or if no group can be read.
    """
    names = [name for name in await admin.groups() if not is_system(name)] if groups is None else list(groups)
    limit = asyncio.Semaphore(MAX_CONCURRENT)
    failures: list[ClientError] = []

    async def rows_of(group: str) -> list[dict[str, Any]]:
        async with limit:
            try:
                offsets = await admin.group_offsets(group)
            except ClientError as error:
                log.warning("group is not in this sample group=%s error=%s", group, error)
                failures.append(error)
                return []
        return [
            {
                "sampledAt": now,
                "consumerGroup": group,
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "brokerOffset": row.broker_offset,
                "consumerOffset": row.consumer_offset,
                "lastConsumedAt": row.last_timestamp * 1000 if row.last_timestamp > 0 else None,
            }
            for queue, row in offsets.items()
        ]

    found = await asyncio.gather(*(rows_of(group) for group in names))
    if failures and len(failures) == len(names):
        raise failures[0]
    return pa.Table.from_pylist([row for rows in found for row in rows], SCHEMA)


class Sampler:
    """Samples in memory, and when they are due for the table: `append_s` seconds after the first of them."""

    def __init__(self, admin: Admin, table: Path, groups: Sequence[str] | None, append_s: float) -> None:
        self._admin = admin
        self._table = table
        self._groups = groups
        self._append_s = append_s
        self._held: list[pa.Table] = []
        self._first_at = 0.0

    def __repr__(self) -> str:
        return f"<Sampler {self._table} holds {len(self._held)} samples>"

    async def add(self, now: datetime, clock_s: float) -> pa.Table:
        """Take a sample and return it; write the held ones if they are due. Raises ClientError, OSError."""
        rows = await sample(self._admin, self._groups, now)
        if not self._held:
            self._first_at = clock_s
        self._held.append(rows)
        if clock_s - self._first_at >= self._append_s:
            self.write()
        return rows

    def write(self) -> None:
        """Append the held samples to the table. Raises OSError, and keeps them."""
        append(self._table, self._held)
        self._held = []


def is_system(group: str) -> bool:
    """Return whether a group is one of RocketMQ's own."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def append(table: Path, samples: Iterable[pa.Table]) -> list[Path]:
    """Append samples to the table, in one file for each day (UTC); return the files. Raises OSError."""
    by_day: dict[str, list[pa.Table]] = {}
    for rows in samples:
        if rows.num_rows:
            at: datetime = rows["sampledAt"][0].as_py()
            by_day.setdefault(f"{at.astimezone(UTC):%Y-%m-%d}", []).append(rows)
    return [_written(table / f"day={day}", pa.concat_tables(tables)) for day, tables in by_day.items()]


def _written(directory: Path, rows: pa.Table) -> Path:
    """Write a file and make its name durable."""
    directory.mkdir(parents=True, exist_ok=True)
    first_ms = rows["sampledAt"][0].value // 1000
    name = f"samples-{first_ms}-{uuid.uuid4().hex[:12]}.parquet"
    hidden = directory / f".{name}.writing"
    try:
        with hidden.open("wb") as file:
            pq.write_table(rows, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(directory / name)
    finally:
        hidden.unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return directory / name
