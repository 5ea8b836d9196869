"""Skylark's Spark source reads RocketMQ's own broker: the same rows as from Skylark, with and without signatures.

RocketMQ's broker responds out of order, from many threads. An offset by time is the nearest one. A pull creates a
consumer group.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skylarkmq import Admin, Message, Producer
from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.client import Client
from tests.interop.brokers import BrokerUnderTest, Commands, apache_commands, running_broker
from tests.spark.conftest import spark as spark  # noqa: PLC0414 - the session's fixture
from tests.spark.scene import Written, batch, stream

pytestmark = [pytest.mark.spark, pytest.mark.interop]

COUNT = 2000
VERSION = "4.9.7"
KEYS = Credentials("spark-access", "spark-secret")
ACCOUNTS = f"""accounts:
- accessKey: {KEYS.access_key}
  secretKey: {KEYS.secret_key}
  admin: true
"""


def guarded(home: Path, namesrv_port: int, broker_port: int, settings: Mapping[str, object]) -> Commands:
    """Return the commands of a broker that checks access keys."""
    commands = apache_commands(VERSION, home, namesrv_port, broker_port, {**settings, "aclEnable": "true"})
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    return commands


@pytest.fixture(scope="module", params=[None, KEYS], ids=["open", "guarded"])
def keys(request: pytest.FixtureRequest) -> Credentials | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def broker(keys: Credentials | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    kind = f"apache-{VERSION}" if keys is None else guarded
    with running_broker(kind, tmp_path_factory.mktemp("apache"), {"enablePropertyFilter": "true"}) as running:
        yield running


async def sent(namesrv: str, keys: Credentials | None) -> list[bytes]:
    """Send the messages and return their bodies."""
    messages = [
        Message("Spark", b"%d" % n if n % 50 else b"%d " % n + bytes(5000), tags="ab"[n % 2], keys=[f"k{n}"])
        for n in range(COUNT)
    ]
    client = Client(namesrv, ClientSettings(credentials=keys))
    async with client, Admin(client=client) as admin, Producer("p", client=client) as producer:
        await admin.create_topic("Spark", 4)
        for begin in range(0, COUNT, 100):
            await asyncio.gather(*(producer.send(message) for message in messages[begin : begin + 100]))
    return [message.body for message in messages]


def test_the_source_reads_rocketmqs_own_broker(
    spark: SparkSession, broker: BrokerUnderTest, keys: Credentials | None, tmp_path: Path
) -> None:
    """Stream and batch, by tag and by time, with committed offsets: each message once, in the order of its queue."""
    bodies = asyncio.run(sent(broker.namesrv, keys))
    signing = {} if keys is None else {"accessKey": keys.access_key, "secretKey": keys.secret_key}
    options = {"subscribe": "Spark", **signing}
    rows = batch(spark, broker.namesrv, **options).select("body", "queueId", "queueOffset", "storeTimestamp").collect()
    assert Counter(bytes(row.body) for row in rows) == Counter(bodies)
    tagged = batch(spark, broker.namesrv, subExpression="a", **options).count()
    assert tagged == COUNT // 2
    stored = sorted(int(row.storeTimestamp.timestamp() * 1000 + 0.5) for row in rows)
    middle = stored[COUNT // 2]
    later = batch(spark, broker.namesrv, startingTimestamp=middle, **options).count()
    assert later == sum(time_ms >= middle for time_ms in stored)
    written = Written(spark, tmp_path)
    read = partial(stream, spark, broker.namesrv, groupId="spark", maxOffsetsPerTrigger=900, **options)
    written.drain(read())
    assert written.bodies() == Counter(bodies)
    assert asyncio.run(lag(broker.namesrv, keys)) == 0


async def lag(namesrv: str, keys: Credentials | None) -> int:
    """Return the lag of the group."""
    client = Client(namesrv, ClientSettings(credentials=keys))
    async with client, Admin(client=client) as admin:
        return await admin.lag("spark", "Spark")
