"""Sending letters again: what was picked is recorded once, and each letter is sent once."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skylarkmq import Admin, Message, MessageExt, Producer
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.jobs.messages import Selection
from skylarkmq.clients.spark.jobs.redrive import (
    PICKED,
    Picked,
    Redrive,
    Redriven,
    read_picked,
    targets_of,
    write_picked,
)
from skylarkmq.clients.spark.jobs.redrive_command import rate_of, send_again, text_of
from skylarkmq.clients.spark.jobs.selected_letters import SelectedLetters
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.clients.spark.replay.selection import Place

DEAD = "Orders-dead"
BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)


async def stored(namesrv: str, topic: str) -> list[MessageExt]:
    async with Admin(namesrv=namesrv) as admin:
        return [message async for message in admin.messages_between(topic, BEGINNING, END)]


async def filled(namesrv: str) -> Picked:
    """Six letters of a pipeline, alternately from two topics; return the first four as picked."""
    async with Producer("shop", namesrv=namesrv) as producer, Admin(namesrv=namesrv) as admin:
        for topic in (DEAD, "Orders", "Payments"):
            await admin.create_topic(topic, 1)
        for n in range(6):
            origin = ("Orders", "Payments")[n % 2]
            letter = Message(DEAD, b"%d" % n, keys=[f"k{n}"], properties={"DEAD_LETTER_TOPIC": origin})
            await producer.send(letter)
    messages = (await stored(namesrv, DEAD))[:4]
    async with Admin(namesrv=namesrv) as admin:
        (queue,) = await admin.queues(DEAD)
    places = tuple(Place(DEAD, queue.broker_name, 0, message.queue_offset) for message in messages)
    return Picked(DEAD, places, messages[0].store_timestamp, messages[-1].store_timestamp)


def letters_of(namesrv: str, topic: str = DEAD) -> SelectedLetters:
    return SelectedLetters(selection=Selection(topic=topic, name_server=namesrv), by="reason")


def test_picked_letters_are_sent_once_to_their_topics(mq_broker: Any, tmp_path: Path) -> None:
    """A second run sends nothing; letters stay where they are."""
    picked = run(filled(mq_broker.namesrv))
    write_picked(tmp_path / "redrive", picked)
    redrive = Redrive(tmp_path / "redrive", rate=1_000.0, limits=Limits(settle_s=0.1))
    first = send_again(letters_of(mq_broker.namesrv), redrive)
    assert (first.picked, first.sent, first.sent_before, first.missing) == (4, 4, 0, 0)
    assert first.topics == {"Orders": 2, "Payments": 2}
    again = send_again(letters_of(mq_broker.namesrv), redrive)
    assert (again.picked, again.sent, again.sent_before, again.missing) == (4, 0, 4, 0)
    found = {topic: run(stored(mq_broker.namesrv, topic)) for topic in ("Orders", "Payments", DEAD)}
    assert [(message.body, message.keys) for message in found["Orders"]] == [(b"0", ["k0"]), (b"2", ["k2"])]
    assert [(message.body, message.keys) for message in found["Payments"]] == [(b"1", ["k1"]), (b"3", ["k3"])]
    assert len(found[DEAD]) == 6
    with pytest.raises(NotStarted, match=f"belongs to a redrive of {DEAD}"):
        send_again(letters_of(mq_broker.namesrv, "Others-dead"), redrive)
    with pytest.raises(NotStarted, match="other arguments"):
        send_again(letters_of(mq_broker.namesrv), Redrive(tmp_path / "redrive", to_topic="Orders"))


def test_letters_that_retention_deleted_are_reported(mq_broker: Any, tmp_path: Path) -> None:
    """The others are sent."""
    picked = run(filled(mq_broker.namesrv))
    gone = Place(DEAD, picked.places[0].broker_name, 0, 1_000)
    write_picked(tmp_path / "redrive", Picked(DEAD, (*picked.places[:1], gone), picked.first_ms, picked.last_ms))
    done = send_again(letters_of(mq_broker.namesrv), Redrive(tmp_path / "redrive", to_topic="Payments"))
    assert (done.sent, done.missing, done.topics) == (1, 1, {"Payments": 1})


def test_what_was_picked_never_changes(tmp_path: Path) -> None:
    """A second process does not replace it; a damaged file is not taken for an empty one."""
    assert read_picked(tmp_path) is None
    picked = Picked(DEAD, (Place(DEAD, "b", 0, 7),), 1, 2)
    write_picked(tmp_path, picked)
    with pytest.raises(NotStarted, match="another redrive"):
        write_picked(tmp_path, Picked(DEAD, (), 1, 2))
    assert read_picked(tmp_path) == picked
    assert [path.name for path in tmp_path.iterdir()] == [PICKED]
    (tmp_path / PICKED).write_text("{")
    with pytest.raises(NotStarted, match="cannot read"):
        read_picked(tmp_path)


def test_a_redrive_must_say_which_letters(tmp_path: Path) -> None:
    """All of them are a choice, too: `--where true`. Nothing is written before."""
    with pytest.raises(NotStarted, match="--redrive needs --pick, --where"):
        send_again(letters_of("127.0.0.1:1"), Redrive(tmp_path / "r"))
    store = SelectedLetters(selection=Selection(topic=DEAD, store="x"), by="reason")
    with pytest.raises(NotStarted, match="--redrive needs --name-server"):
        send_again(store, Redrive(tmp_path / "r"))
    with pytest.raises(NotStarted, match="--rate must be"):
        rate_of("fast")
    with pytest.raises(NotStarted, match="cannot be the name of a topic"):
        send_again(letters_of("127.0.0.1:1"), Redrive(tmp_path / "r", to_topic="a b"))
    assert not (tmp_path / "r").exists()


def test_letters_name_their_topics() -> None:
    """In RETRY_TOPIC for letters of a broker, in DEAD_LETTER_TOPIC for those of a pipeline."""
    assert targets_of("%DLQ%billing", None).naming == ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
    assert targets_of(DEAD, None).naming == ("DEAD_LETTER_TOPIC",)
    assert targets_of(DEAD, "Again").topic_of(DEAD) == "Again"


def test_the_text_names_what_is_missing() -> None:
    """And where the map is."""
    done = Redriven(
        topic=DEAD, picked=4, sent=2, sent_before=1, missing=1, stored_twice=1, topics={"Orders": 2}, map="r/map"
    )
    assert text_of(done).splitlines() == [
        "2 of 4 letters sent, 1 were sent before",
        "  Orders: 2",
        f"1 are no longer in {DEAD}: retention has deleted them",
        "1 are stored twice: a broker stored a request late",
        "map of offsets: r/map",
    ]
