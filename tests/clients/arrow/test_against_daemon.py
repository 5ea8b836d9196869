"""Both scans against our broker, with TLS, while it runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skylarkmq import Admin, Message, Producer, Sql92, TlsSettings
from skylarkmq.arrow import RECORD_COLUMNS, scan_store, scan_topic
from tests.harness.certificates import Certificates
from tests.harness.daemon import running

pytestmark = pytest.mark.daemon

COUNT = 300


async def fill(namesrv: str, tls: TlsSettings) -> None:
    """Send messages with tags, keys and a property, some of them compressed."""
    async with Admin(namesrv=namesrv, tls=tls) as admin:
        await admin.create_topic("T", 2)
    async with Producer("p", namesrv=namesrv, tls=tls) as producer:
        for number in range(COUNT):
            body = b"%d " % number * (2000 if number % 10 == 0 else 1)
            properties = {"weight": str(number)}
            await producer.send(Message("T", body, tags=f"t{number % 3}", keys=[f"k{number}"], properties=properties))


def test_topic_and_store_have_the_same_rows(tmp_path: Path) -> None:
    """All fields of all records are equal, and so are selections by tag, property and key."""
    made = Certificates(tmp_path)
    pair = made.issue("server")
    settings = {"tls.server.mode": "enforcing", "tls.server.certPath": pair.cert, "tls.server.keyPath": pair.key}
    tls = TlsSettings(trust_cert_path=made.authority.cert)
    columns = [name for name in RECORD_COLUMNS if name != "brokerName"]
    with running(directory=tmp_path, settings=settings | {"enablePropertyFilter": True}) as daemon:
        asyncio.run(fill(daemon.namesrv, tls))

        def topic(**more: Any) -> list[dict[str, Any]]:
            return ordered(scan_topic(daemon.namesrv, "T", tls=tls, columns=columns, decode=False, **more))

        stored = ordered(scan_store(tmp_path / "store", topics="T", columns=columns, decode=False))
        assert len(stored) == COUNT
        assert topic() == stored
        assert topic(subscription="t1") == [row for row in stored if row["tags"] == "t1"]
        heavy = topic(subscription=Sql92("weight >= 250"))
        assert sorted(row["keys"] for row in heavy) == [f"k{number}" for number in range(250, 300)]
        later = sorted(row["storeTimestamp"] for row in stored)[COUNT // 2]
        assert topic(start=later) == [row for row in stored if row["storeTimestamp"] >= later]
        assert topic(end=later) == [row for row in stored if row["storeTimestamp"] < later]


def ordered(reader: Any) -> list[dict[str, Any]]:
    """Return the rows by queue and offset."""
    rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return sorted(rows, key=lambda row: (row["queueId"], row["queueOffset"]))
