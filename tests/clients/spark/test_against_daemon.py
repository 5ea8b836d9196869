"""The source without Spark, against our broker: certificates, limits of responses, cold reads."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from skylarkmq import Admin, Message, Producer
from skylarkmq.clients.arrow.topic.range_reader import RangeReader, Work
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.source.source import BatchReader
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS
from tests.harness.certificates import Certificates
from tests.harness.daemon import running

pytestmark = pytest.mark.daemon


def rows_of(**options: str) -> Counter[bytes]:
    """Return the bodies that a batch reads."""
    reader = BatchReader(parse(SOURCE_OPTIONS, {"subscribe": "T"} | options))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return Counter(body for batch in batches for body in batch.column("body").to_pylist())


async def fill(namesrv: str, bodies: list[bytes], tls: TlsSettings | None = None) -> None:
    async with Admin(namesrv=namesrv, tls=tls) as admin:
        await admin.create_topic("T", 2)
    async with Producer("p", namesrv=namesrv, tls=tls) as producer:
        for begin in range(0, len(bodies), 100):
            await producer.send_batch([Message("T", body) for body in bodies[begin : begin + 100]])


def test_lookups_and_pulls_use_tls(tmp_path: Path) -> None:
    """Requests use the certificates of the options; without them, nothing is read."""
    made = Certificates(tmp_path)
    pair = made.issue("server")
    settings = {"tls.server.mode": "enforcing", "tls.server.certPath": pair.cert, "tls.server.keyPath": pair.key}
    bodies = [b"%d" % number for number in range(300)]
    with running(directory=tmp_path, settings=settings) as daemon:
        asyncio.run(fill(daemon.namesrv, bodies, TlsSettings(trust_cert_path=made.authority.cert)))
        trusted = {"nameServer": daemon.namesrv, "tls.trustCertPath": str(made.authority.cert)}
        assert rows_of(**trusted) == Counter(bodies)
        with pytest.raises(Exception, match=r"no connection to|CERTIFICATE"):
            rows_of(**{"nameServer": daemon.namesrv, "tls.enable": "true", "brokerTimeoutMs": "300"})


def test_a_broker_may_limit_the_size_of_responses(tmp_path: Path) -> None:
    """Limits of count and bytes truncate responses; the rest is requested until it is complete."""
    settings = {
        "maxTransferCountOnMessageInMemory": 5,
        "maxTransferCountOnMessageInDisk": 3,
        "maxTransferBytesOnMessageInMemory": 20_000,
    }
    bodies = [b"%d " % number * (1 + number % 500) for number in range(400)]
    with running(directory=tmp_path, settings=settings) as daemon:
        asyncio.run(fill(daemon.namesrv, bodies))
        assert rows_of(nameServer=daemon.namesrv) == Counter(bodies)
        assert rows_of(nameServer=daemon.namesrv, maxPartitions="1", pullBatchSize="7") == Counter(bodies)


def test_a_task_survives_a_broker_restart(tmp_path: Path) -> None:
    """The connection breaks between two batches; the broker restarts on another port and is found by its name."""
    bodies = [b"%d " % number + bytes(4000) for number in range(2000)]
    more = {"mappedFileSizeCommitLog": 64 << 20}
    with running(directory=tmp_path, settings=more) as daemon:
        asyncio.run(fill(daemon.namesrv, bodies))
        options = parse(SOURCE_OPTIONS, {"subscribe": "T", "nameServer": daemon.namesrv, "maxPartitions": "1"})
        namesrv_port = daemon.namesrv_port
        (partition,) = BatchReader(options).partitions()
        work: Work = partition.value
        batches = RangeReader(options, work).batches()
        found = [next(batches)]
        daemon.process.kill()
        daemon.process.wait()
    with running(directory=tmp_path, settings=more | {"embeddedNamesrvPort": namesrv_port}):
        found += batches
    assert Counter(body for batch in found for body in batch.column("body").to_pylist()) == Counter(bodies)
