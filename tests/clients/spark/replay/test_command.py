"""The command: a mistake is one line with advice; an archive is replayed into a broker."""

import json
import time
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from skylarkmq import Admin, MessageExt
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.spark.replay.command import replay, time_ms
from skylarkmq.clients.spark.replay.copies import MARK
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.spark.replay.world import rows
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import free_ports

UNUSED = f"127.0.0.1:{free_ports(1)[0]}"
COUNT = 40
BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of two queues; the bodies of the second are compressed by zlib, and its messages have a tag."""
    first = rows([MessageQueue("Orders", "old", 0)], COUNT, storeTimestamp=1_000_000)
    body, properties = zlib.compress(b"text"), "TAGS\x01t\x02UNIQ_KEY\x01u\x02"
    second = rows([MessageQueue("Orders", "old", 1)], COUNT, sysFlag=1, body=body, properties=properties, msgId="u")
    pq.write_table(pa.concat_tables([first, second]), tmp_path / "archive.parquet")
    return tmp_path / "archive.parquet"


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(replay, [*map(str, arguments), "--settle", "0.1"])


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ((), "no name server responds"),
        (("--live",), "set one source"),
        (("--to-topic", "a b"), "cannot be the name of a topic"),
        (("--to-topic", "A", "--map-topic", "B=C"), "choose one"),
        (("--map-topic", "B"), "must be KEY=VALUE"),
        (("--since", "yesterday"), "--since must be a time such as"),
        (("--rate", "fast"), "--rate must be a rate such as"),
        (("--topics", ","), "--topics names no topic"),
        (("--option", "tls.enabled=true"), "did you mean tls.enable?"),
    ],
)
def test_a_mistake_is_one_line_with_advice(
    arguments: tuple[str, ...], advice: str, archive: Path, tmp_path: Path
) -> None:
    """The replay does not start, and the exit code is 2."""
    done = invoke(tmp_path / "r", "-n", UNUSED, "--archive", archive, *arguments)
    assert done.exit_code == 2, done.output
    assert advice in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_a_dry_run_counts_by_new_topic_and_needs_no_broker(archive: Path, tmp_path: Path) -> None:
    """Nothing is written, either."""
    done = invoke(tmp_path / "r", "--archive", archive, "--until", "1970-01-01T00:00:02", "--dry-run", "--json")
    summary = json.loads(done.stdout)
    assert (done.exit_code, summary["selected"], summary["topics"]) == (0, COUNT, {"Orders": COUNT})
    assert not (tmp_path / "r").exists()
    one = invoke(tmp_path / "r", "--archive", archive, "--dry-run", "--key", "id-Orders@old:0-0")
    assert one.stdout == "1 of 80 messages would be sent:\n  Orders: 1\n"


def test_times_are_utc_unless_they_have_a_zone() -> None:
    """ISO 8601, or ms."""
    assert time_ms("--since", "1970-01-01T00:00:02") == time_ms("--since", "2000") == 2000
    assert time_ms("--since", "1970-01-01T01:00:02+01:00") == time_ms("--since", "1970-01-01T00:00:02Z") == 2000


def stored(namesrv: str, topic: str) -> list[MessageExt]:
    """Return the messages of a topic, in the order of its queues."""

    async def read() -> list[MessageExt]:
        async with Admin(namesrv=namesrv) as admin:
            return [message async for message in admin.messages_between(topic, BEGINNING, END)]

    return sorted(run(read()), key=lambda message: (message.queue_id, message.queue_offset))


def create(namesrv: str, topic: str, queues: int) -> None:
    async def made() -> None:
        async with Admin(namesrv=namesrv) as admin:
            await admin.create_topic(topic, queues)

    run(made())


def test_an_archive_is_replayed_into_a_broker(archive: Path, tmp_path: Path, mq_broker: Any) -> None:
    """Bodies, ids, tags and order are those of the archive; compressed bodies can be read; the map names all places."""
    create(mq_broker.namesrv, "Again", 4)
    arguments = tmp_path / "r", "-n", mq_broker.namesrv, "--archive", archive, "--to-topic", "Again", "--json"
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sent"] == 2 * COUNT
    messages = stored(mq_broker.namesrv, "Again")
    assert [(message.queue_id, message.queue_offset) for message in messages] == [
        (queue, offset) for queue in (0, 1) for offset in range(COUNT)
    ]
    assert [message.payload() for message in messages[:COUNT]] == [
        f"Orders@old:0 {2 * n}".encode() for n in range(COUNT)
    ]
    assert {message.payload() for message in messages[COUNT:]} == {b"text"}
    assert {message.tags for message in messages[COUNT:]} == {"t"}
    assert [message.uniq_key for message in messages[:COUNT]] == [f"id-Orders@old:0-{2 * n}" for n in range(COUNT)]
    assert {message.flag for message in messages} == {7}
    mapped = pq.read_table(tmp_path / "r" / "map").to_pylist()
    by_place = {(row["newQueueId"], row["newQueueOffset"]): row for row in mapped}
    for message in messages:
        row = by_place.pop((message.queue_id, message.queue_offset))
        assert message.properties[MARK].endswith(f":Orders:old:{row['queueId']}:{row['queueOffset']}")
        assert (row["newTopic"], row["newMsgId"]) == ("Again", message.offset_msg_id)
    assert not by_place
    again = json.loads(invoke(*arguments).stdout)
    assert (again["sent"], again["sent_before"]) == (0, 2 * COUNT)
    other = invoke(*arguments, "--key", "k")
    assert (other.exit_code, "other arguments (selection)" in other.stderr) == (2, True)


@pytest.mark.daemon
def test_delayed_copies_are_mapped_to_the_queue_of_their_level(archive: Path, tmp_path: Path, mq_broker: Any) -> None:
    """They arrive after the delay. Another run finds them there, and sends nothing."""
    create(mq_broker.namesrv, "Later", 2)
    arguments = [tmp_path / "r", "-n", mq_broker.namesrv, "--archive", archive, "--to-topic", "Later", "--json"]
    arguments += ["--delay-level", 1, "--key", "u"]
    first = invoke(*arguments)
    assert json.loads(first.stdout)["sent"] == COUNT, first.output
    rows = pq.read_table(tmp_path / "r" / "map").to_pylist()
    assert [row["scheduleOffset"] for row in rows] == list(range(COUNT))
    assert {row["newQueueOffset"] for row in rows} == {None}
    for path in (tmp_path / "r" / "map").iterdir():
        path.unlink()
    again = json.loads(invoke(*arguments).stdout)
    assert (again["sent"], again["found"], again["sent_before"]) == (0, COUNT, COUNT)
    deadline = time.monotonic() + PROCESS_LIMIT_S
    while len(stored(mq_broker.namesrv, "Later")) < COUNT:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(stored(mq_broker.namesrv, "Later")) == COUNT


def test_a_live_topic_is_replayed_into_itself_once(archive: Path, tmp_path: Path, mq_broker: Any) -> None:
    """The copies are not copied; the store directory of the running broker is another source of the same messages."""
    create(mq_broker.namesrv, "Orders", 2)
    assert invoke(tmp_path / "r", "-n", mq_broker.namesrv, "--archive", archive).exit_code == 0
    for _ in range(2):
        done = invoke(tmp_path / "live", "-n", mq_broker.namesrv, "--live", "--topics", "Orders", "--json")
        assert done.exit_code == 0, done.output
        assert len(stored(mq_broker.namesrv, "Orders")) == 4 * COUNT
    from_store = invoke(
        tmp_path / "store", "-n", mq_broker.namesrv, "--store", mq_broker.store, "-t", "Orders", "--key", "u",
        "--no-index", "--to-topic", "Orders", "--json",
    )  # fmt: skip
    assert from_store.exit_code == 0, from_store.output
    assert json.loads(from_store.stdout)["sent"] == 2 * COUNT, from_store.output


def test_a_missing_topic_is_reported_at_the_start(archive: Path, tmp_path: Path, mq_broker: Any) -> None:
    """A given topic must exist; original topics are checked when their first message is read."""
    done = invoke(tmp_path / "r", "-n", mq_broker.namesrv, "--archive", archive, "--to-topic", "Nowhere")
    assert (done.exit_code, "topic Nowhere does not exist" in done.stderr) == (2, True)
