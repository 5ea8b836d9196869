"""Samples of offsets, and the table that they are appended to."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute
from skylarkmq.clients.spark.jobs import lag_samples
from skylarkmq.clients.spark.jobs.lag_command import line, names_of
from skylarkmq.clients.spark.jobs.lag_samples import Sampler, append, is_system, sample
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import OffsetWrapper

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Cluster:
    """Groups with the offsets of one queue each; groups named `down` cannot be read."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def groups(self) -> dict[str, Any]:
        return dict.fromkeys(self.names)

    async def group_offsets(self, group: str) -> dict[MessageQueue, OffsetWrapper]:
        if group.startswith("down"):
            raise NoRoute("no broker")
        row = OffsetWrapper(broker_offset=10, consumer_offset=len(group), last_timestamp=1_714_564_800_000)
        return {MessageQueue("Orders", "b", 0): row, MessageQueue("Orders", "b", 1): OffsetWrapper()}


async def sampled(cluster: Any, groups: list[str] | None = None, now: datetime = NOON) -> pa.Table:
    return await sample(cluster, groups, now)


async def test_a_sample_has_every_queue_of_every_group() -> None:
    """System groups are omitted; a queue that was never consumed has no time."""
    rows = (await sampled(Cluster("billing", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"))).to_pylist()
    assert [(row["consumerGroup"], row["topic"], row["queueId"]) for row in rows] == [
        ("billing", "Orders", 0),
        ("billing", "Orders", 1),
    ]
    assert (rows[0]["brokerOffset"], rows[0]["consumerOffset"], rows[0]["lastConsumedAt"]) == (10, 7, NOON)
    assert rows[1]["lastConsumedAt"] is None
    assert {row["sampledAt"] for row in rows} == {NOON}


async def test_a_group_that_cannot_be_read_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The others are sampled; if none can be read, the sample fails."""
    rows = await sampled(Cluster("billing", "down"))
    assert rows["consumerGroup"].unique().to_pylist() == ["billing"]
    assert "group is not in this sample group=down" in caplog.text
    with pytest.raises(ClientError):
        await sampled(Cluster("down"))
    assert (await sampled(Cluster())).num_rows == 0


async def test_samples_become_one_file_for_each_day(tmp_path: Path) -> None:
    """Files are complete when they have their names; samples without rows make no file."""
    late = await sampled(Cluster("a"), now=NOON + timedelta(hours=11, minutes=59))
    next_day = await sampled(Cluster("a"), now=NOON + timedelta(hours=12))
    files = append(tmp_path / "lag", [late, late, next_day, late.slice(0, 0)])
    assert [file.parent.name for file in files] == ["day=2024-05-01", "day=2024-05-02"]
    assert [pq.read_metadata(file).num_rows for file in files] == [4, 2]
    assert sorted(path for path in (tmp_path / "lag").rglob("*") if path.is_file()) == sorted(files)
    assert pq.read_schema(files[0]).equals(lag_samples.SCHEMA)


async def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples stay in memory, and the next write contains them."""

    def fail(rows: pa.Table, file: Any, **options: Any) -> None:
        file.write(b"PAR1")
        raise OSError("no space left")

    sampler = Sampler(Cluster("a"), tmp_path, None, 60.0)  # type: ignore[arg-type]  # only two methods are used
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", fail)
        await sampler.add(NOON, 0.0)
        with pytest.raises(OSError, match="no space left"):
            sampler.write()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    sampler.write()
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.read_metadata(file).num_rows == 2


async def test_held_samples_are_written_when_the_first_is_old_enough(tmp_path: Path) -> None:
    """Five minutes after the first sample, by default; then a new period begins."""
    sampler = Sampler(Cluster("a"), tmp_path, None, 60.0)  # type: ignore[arg-type]
    counts = []
    for at in (0.0, 30.0, 59.9, 60.0, 90.0, 149.0, 150.0):
        await sampler.add(NOON + timedelta(seconds=at), at)
        counts.append(len(list(tmp_path.rglob("*.parquet"))))
    assert counts == [0, 0, 0, 1, 1, 1, 2]


async def test_the_progress_line_has_the_lag() -> None:
    """Queues in which the group is ahead, after a topic was created again, count as no lag."""
    assert line(await sampled(Cluster("billing", "b"))) == "sample groups=2 queues=4 lag=12"
    assert line(await sampled(Cluster())) == "sample groups=0 queues=0 lag=0"
    assert line(await sampled(Cluster("a" * 20))) == "sample groups=1 queues=2 lag=0"


def test_names_are_separated_by_commas() -> None:
    """None: all groups."""
    assert names_of(None) is None
    assert names_of(" a, b,") == ["a", "b"]
    assert is_system("CID_RMQ_SYS_TRANS")
    assert not is_system("billing")
