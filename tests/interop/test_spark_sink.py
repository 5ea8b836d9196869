"""The Spark sink against RocketMQ's own brokers: it writes partitions, and its ledger records committed batches.

The tests need no Spark: the code that runs in an executor is a function of record batches.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from skylarkmq import Admin, MessageExt
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.sink.sink import Task, commit, last_batch, write_partition
from skylarkmq.clients.spark.sink.sink_options import OPTIONS, SinkOptions
from skylarkmq.clients.spark.sink.sink_rows import MARK
from skylarkmq.protocol.message import PropertyName
from tests.interop.brokers import BrokerUnderTest, running_broker, wait_until

pytestmark = pytest.mark.interop

BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)
BATCHES = 70  # more than the maximum between two summaries


@pytest.fixture(scope="module", params=["apache-4.9.7", "apache-5.3.3"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    settings = {"brokerFastFailureEnable": "false"}  # machines that run tests are busy
    with running_broker(request.param, tmp_path_factory.mktemp(request.param), settings) as running:
        yield running


def options(broker: BrokerUnderTest, topic: str, **more: str) -> SinkOptions:
    return parse(OPTIONS, {"nameServer": broker.namesrv, "topic": topic, "sendTimeoutMs": "20s"} | more)


def rows(count: int, groups: int = 0) -> Iterator[pa.RecordBatch]:
    columns = {"body": pa.array([b"%d" % n for n in range(count)])}
    if groups:
        columns["messageGroup"] = pa.array([f"g{n % groups}" for n in range(count)])
    yield pa.RecordBatch.from_pydict(columns)


def stored(broker: BrokerUnderTest, topic: str) -> list[MessageExt]:
    async def messages() -> AsyncIterator[MessageExt]:
        async with Admin(namesrv=broker.namesrv) as admin:
            async for message in admin.messages_between(topic, BEGINNING, END):
                yield message

    async def collected() -> list[MessageExt]:
        return [message async for message in messages()]

    return run(collected())


def test_rows_of_groups_keep_their_order(broker: BrokerUnderTest) -> None:
    """The rows of a group keep their order, although many batch requests are in flight: each queue has at most one."""
    broker.create_topic("SinkGroups", 4)
    few = options(broker, "SinkGroups", batchRows="5")
    write_partition(few, Task("q", 0, 0, 0), rows(1000, groups=9))
    messages = stored(broker, "SinkGroups")
    assert Counter(message.properties[MARK] for message in messages) == Counter(f"q:0:0:{n}" for n in range(1000))
    for group in range(9):
        of_group = [m for m in messages if m.properties[PropertyName.SHARDING_KEY] == f"g{group}"]
        assert len({message.queue_id for message in of_group}) == 1
        assert [int(message.body) for message in of_group] == list(range(group, 1000, 9))


def test_the_ledger_skips_a_committed_batch(broker: BrokerUnderTest) -> None:
    """The sink creates the ledger's topic and group. A committed batch is not sent again, also after summaries."""
    broker.create_topic("SinkLedger", 1)
    with_ledger = options(broker, "SinkLedger", skipCommittedBatches="true")
    for batch in range(BATCHES):
        report = write_partition(with_ledger, Task("query", batch, 0, 0), rows(1))
        assert report.rows == 1
        commit(with_ledger, [report])
    # Different options, so that the sink opens new connections and reads the ledger again.
    with_new_connections = options(broker, "SinkLedger", skipCommittedBatches="true", batchRows="7")
    # RocketMQ makes the last entry visible some time after its response.
    wait_until(lambda: last_batch(with_new_connections, "query") == BATCHES - 1, "the last entry")
    again = write_partition(with_new_connections, Task("query", BATCHES - 1, 0, 1), rows(1))
    assert (again.rows, again.skipped) == (0, 1)
    assert len(stored(broker, "SinkLedger")) == BATCHES
