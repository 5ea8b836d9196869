"""Replays over a simulated cluster: each message once and in order, whatever fails and whenever the process dies."""

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from skylarkmq.clients.spark.replay import job, journal
from skylarkmq.clients.spark.replay.copies import MARK, origin_of
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.clients.spark.replay.job import rows_per_request
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import PropertyName
from tests.clients.spark.replay.world import Lives, World, rows

OLD = [MessageQueue("Orders", broker, queue) for broker in ("a", "b") for queue in range(3)]
NEW = [MessageQueue("Again", "a", queue) for queue in range(2)]
COUNT = 15
TO_AGAIN = Targets(to_topic="Again")


def check(world: World, lives: Lives, count: int = COUNT) -> None:
    """Each message is once in a queue and once in the map, the messages of each old queue are in order in one queue."""
    places: dict[tuple[str, str, int, int], tuple[MessageQueue, int]] = {}
    order: dict[MessageQueue, list[int]] = defaultdict(list)
    for queue, log in world.log.items():
        for stored in log:
            if (origin := origin_of(stored.properties.get(MARK), "r1")) is None:
                continue
            assert origin not in places, f"{origin} is stored twice"
            assert stored.body.decode() == f"{MessageQueue(*origin[:3])} {origin.offset}"
            assert stored.properties["n"] == str(origin.offset // 2)
            assert stored.properties[PropertyName.UNIQ_KEY] == f"id-{MessageQueue(*origin[:3])}-{origin.offset}"
            places[origin] = (queue, stored.queue_offset)
            order[MessageQueue(*origin[:3])].append(origin.offset)
    assert dict(order) == {queue: [2 * number for number in range(count)] for queue in OLD}
    mapped = {}
    for row in lives.map().to_pylist():
        old = row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]
        offset = row["newQueueOffset"] if row["scheduleOffset"] is None else row["scheduleOffset"]
        assert old not in mapped, f"{old} is in the map twice"
        mapped[old] = offset, row["msgId"], row["newMsgId"]
    assert mapped == {
        origin: (
            offset,
            f"id-{MessageQueue(*origin[:3])}-{origin[3]}",
            world.log[queue][offset].offset_msg_id,
        )
        for origin, (queue, offset) in places.items()
    }


@pytest.mark.crash
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.crash)])
def test_each_message_is_stored_once_although_the_process_is_killed(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are lost, stored without a response, or stored late; the process dies at any of its steps."""
    kills = 0
    for seed in seeds:
        world = World(NEW, seed, fault=0.2, kill=0.03)
        with monkeypatch.context() as patch:
            lives = Lives(world, tmp_path / str(seed), patch, TO_AGAIN)
            lives.live_until_done(rows(OLD, COUNT))
        check(world, lives)
        kills += world.kills
    assert kills > len(seeds)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.crash)])
def test_delayed_messages_are_found_in_the_queue_of_their_level(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a delay level the broker holds all copies in one queue; the new offset is unknown."""
    world = World(NEW, seed, fault=0.1, kill=0.02)
    lives = Lives(world, tmp_path, monkeypatch, Targets(to_topic="Again", delay_level=3))
    lives.live_until_done(rows(OLD, COUNT))
    (held,) = world.log
    assert (held.topic, held.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    check(world, lives)
    assert lives.map().column("newQueueOffset").null_count == COUNT * len(OLD)
    assert {row["newTopic"] for row in lives.map().to_pylist()} == {"Again"}


def test_a_finished_replay_sends_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call again reads the source, and skips all messages; later ones are sent."""
    world = World(NEW)
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    lives.live(rows(OLD, COUNT))
    requests = world.requests
    again = lives.live(rows(OLD, COUNT))
    assert (world.requests, again.counts.sent_before) == (requests, COUNT * len(OLD))
    lives.live(rows(OLD, COUNT + 2))
    check(world, lives, COUNT + 2)


def test_an_old_queue_keeps_its_new_queue_when_the_topic_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is recorded before the first message is sent."""
    world = World(NEW[:1])
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    lives.live(rows(OLD, COUNT))
    world._queues = [MessageQueue("Again", broker, queue) for broker in ("a", "b") for queue in range(8)]
    lives.live(rows(OLD, COUNT + 3))
    check(world, lives, COUNT + 3)
    assert set(world.log) == {NEW[0]}


def test_a_copy_is_not_replayed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with the mark of the same replay are not selected, so that a topic can be replayed into itself."""
    world = World(NEW)
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    own = rows(OLD[:1], 1, queueId=5, properties=f"{MARK}\x01r1:Orders:a:0:0\x02")
    other = rows(OLD[:1], 1, queueId=6, properties=f"{MARK}\x01r2:Orders:a:0:0\x02")
    run = lives.live(pa.concat_tables([own, other]))
    assert (run.counts.read, run.counts.selected) == (2, 1)


def test_messages_that_arrived_and_were_deleted_stop_the_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If retention deleted the messages after the last recorded one, nothing can tell whether a message arrived."""
    world = World(NEW)
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    lives.live(rows(OLD, 2))
    world.first[NEW[0]] = 1000
    with pytest.raises(ReplayFailed, match="were deleted before the replay could read them"):
        lives.live(rows(OLD, 4))


def test_a_broker_that_lost_acknowledged_messages_stops_the_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map names offsets that the queue does not have."""
    world = World(NEW)
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    lives.live(rows(OLD, 2))
    del world.log[NEW[0]][-1]
    with pytest.raises(ReplayFailed, match="it lost them, or the topic was created again"):
        lives.live(rows(OLD, 4))


def test_a_full_disk_ends_the_run_and_the_next_one_completes_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a file of the map could not be written, no later one is: the copies are found in the queues instead."""
    world = World(NEW)
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    publish = journal._publish
    failed: list[Path] = []

    def full_disk(path: Path, content: bytes | pa.Buffer) -> None:
        if path.name == "00000002.parquet" and not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        publish(path, content)

    monkeypatch.setattr(journal, "_publish", full_disk)
    with pytest.raises(OSError, match="No space left"):
        lives.live(rows(OLD, COUNT), pause_s=0.01)
    assert [path.name for path in (tmp_path / journal.MAP).iterdir()] == ["00000001.parquet"]
    lives.live(rows(OLD, COUNT))
    check(world, lives)


def test_offsets_that_do_not_ascend_stop_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages of one queue and offset are two generations of a topic, or an archive with repeated rows."""
    lives = Lives(World(NEW), tmp_path, monkeypatch, TO_AGAIN)
    with pytest.raises(ReplayFailed, match="offset 0 of Orders@a:0 follows offset 0"):
        lives.live(pa.concat_tables([rows(OLD, 2), rows(OLD, 2)]))


def test_messages_that_appear_before_the_sent_ones_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that grows backwards: order forbids to send them, and they must not count as sent."""
    lives = Lives(World(NEW), tmp_path, monkeypatch, TO_AGAIN)
    table = rows(OLD[:1], 10)
    lives.live(table.slice(3))
    with pytest.raises(ReplayFailed, match="3 messages of the source were not sent"):
        lives.live(table)


def test_a_topic_without_queues_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic of the copies must exist; a topic of the broker is refused before anything is sent."""
    lives = Lives(World(NEW), tmp_path, monkeypatch, Targets())
    with pytest.raises(ReplayFailed, match="SCHEDULE_TOPIC_XXXX belongs to the broker"):
        lives.live(rows([MessageQueue("SCHEDULE_TOPIC_XXXX", "a", 1)], 2))


def test_memory_is_bounded_by_bytes_of_all_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits below the size of a request send what one run of rows has added, one request at a time; all arrive."""
    monkeypatch.setattr(job, "PENDING_BYTES", 0)
    monkeypatch.setattr(job, "REQUESTED_BYTES", 1)
    world = World(NEW)
    lives = Lives(world, tmp_path, monkeypatch, TO_AGAIN)
    lives.live(rows(OLD, COUNT), size=1)
    assert world.requests == COUNT * len(OLD)
    assert world.most_in_flight == 1
    check(world, lives)


def test_a_low_rate_makes_small_requests() -> None:
    """About twenty requests a second; a delayed message is alone in its request."""
    assert [rows_per_request(256, rate, 0) for rate in (None, 10_000.0, 100.0, 0.5)] == [256, 256, 5, 1]
    assert rows_per_request(256, None, 3) == 1
