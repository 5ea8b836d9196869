"""The loop that takes samples, against a broker."""

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skylarkmq import Admin, Message, Producer
from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.sdk.base.errors import NoRoute
from skylarkmq.clients.spark.jobs import lag_samples
from skylarkmq.clients.spark.jobs.lag_command import record
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig


async def filled(namesrv: str) -> ClusterOptions:
    """Three messages on one queue, of which group `billing` has consumed one."""
    async with Producer("shop", namesrv=namesrv) as producer, Admin(namesrv=namesrv) as admin:
        await admin.create_topic("Orders", 1)
        sent = [await producer.send(Message("Orders", b"x")) for _ in range(3)]
        await admin.create_group(SubscriptionGroupConfig(group_name="billing"))
        await admin.set_offset("billing", sent[0].queue, 1)
    return ClusterOptions(name_server=namesrv)


async def test_a_signal_writes_the_held_samples(
    mq_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sample that fails is reported, and the next one follows."""
    cluster = await filled(mq_broker.namesrv)
    taken: list[pa.Table] = []
    take = lag_samples.sample

    async def sample(*arguments: Any) -> pa.Table:
        if not taken:
            taken.append(pa.table({}))
            raise NoRoute("no broker")
        taken.append(await take(*arguments))
        if len(taken) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return taken[-1]

    monkeypatch.setattr(lag_samples, "sample", sample)
    await record(cluster, tmp_path, None, every_s=0.01, append_s=60.0)
    (file,) = tmp_path.rglob("*.parquet")
    rows = pq.read_table(file)
    assert rows.equals(pa.concat_tables(taken[1:]))
    found = {(row["consumerGroup"], row["brokerOffset"], row["consumerOffset"]) for row in rows.to_pylist()}
    assert found == {("billing", 3, 1)}
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == "mqspark-lag: no sample: no broker"
    assert errors[1:4] == ["sample groups=1 queues=1 lag=2"] * 3


async def test_one_sample_that_fails_is_an_error(
    mq_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --once; nothing is written."""

    async def sample(*_: Any) -> pa.Table:
        raise NoRoute("no broker")

    monkeypatch.setattr(lag_samples, "sample", sample)
    cluster = ClusterOptions(name_server=mq_broker.namesrv)
    with pytest.raises(NoRoute):
        await record(cluster, tmp_path / "lag", None, every_s=None, append_s=60.0)
    assert not (tmp_path / "lag").exists()
