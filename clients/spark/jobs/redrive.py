"""Picked dead letters are sent again by a replay (clients/spark/replay), each once.

    DIRECTORY/picked.json     the places of the letters, written once, before the first of them is sent
    DIRECTORY/...             state and map of offsets of the replay

The letters are part of the replay's definition. A run that finds picked.json sends the letters in it that were not sent
before, whatever became a dead letter since. So each picked letter is sent once, however often a run is killed. Letters
stay in the dead-letter topic until retention deletes them.

A letter goes to the topic that it came from: RETRY_TOPIC of letters of a broker, DEAD_LETTER_TOPIC of letters of a
pipeline; or all go to one topic.
"""

import os
import uuid
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.pipeline.rows import ORIGIN_TOPIC
from skylarkmq.clients.spark.replay import replay
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.clients.spark.replay.replay import Replay
from skylarkmq.clients.spark.replay.selection import Place, Selection
from skylarkmq.clients.spark.replay.sources import Topics
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.clients.terminal.printed_output import Summary
from skylarkmq.protocol.codes import DLQ_PREFIX

PICKED: Final = "picked.json"
MAX_PICKED: Final = 100_000
"""Maximum letters of one redrive: their places are in memory, and in the state of the replay."""


class Picked(msgspec.Struct, frozen=True):
    """The letters of a redrive, and the ms of the first and the last store time of them."""

    topic: str
    places: tuple[Place, ...]
    first_ms: int
    last_ms: int


class Redrive(msgspec.Struct, frozen=True):
    """How letters are sent again. `directory` keeps the state; `to_topic` None: to their origins.

    `rate`: letters a second, None: as fast as possible.
    """

    directory: Path
    to_topic: str | None = None
    rate: float | None = None
    limits: Limits = Limits()


class Redriven(Summary, frozen=True, kw_only=True):
    """The summary of `mqspark-dead-letters --redrive`."""

    schema: Annotated[str, Meta(description="name and version of this format")] = "mqspark-dead-letters-redrive/1"
    topic: Annotated[str, Meta(description="the dead-letter topic")]
    picked: Annotated[int, Meta(description="picked letters")]
    sent: Annotated[int, Meta(description="letters that this run sent")]
    sent_before: Annotated[int, Meta(description="letters that earlier runs sent")]
    missing: Annotated[int, Meta(description="picked letters that are no longer in the dead-letter topic")]
    stored_twice: Annotated[
        int, Meta(description="letters that a broker stored twice, because a request arrived late; usually 0")
    ]
    topics: Annotated[dict[str, int], Meta(description="letters that this run sent, by topic")]
    map: Annotated[str | None, Meta(description="the directory of the map from old to new offsets")]


def pick(rows: DataFrame, topic: str, limit: int = MAX_PICKED) -> Picked:
    """Return the places of letters. Raises NotStarted for none, or more than `limit`."""
    stored = f.unix_millis("storeTimestamp").alias("storedMs")
    found = rows.select("brokerName", "queueId", "queueOffset", stored).limit(limit + 1).collect()
    if not found:
        raise NotStarted("no dead letter is selected, so there is nothing to send again")
    if len(found) > limit:
        raise NotStarted(f"more than {limit:,} dead letters are selected: select fewer, for example by --until")
    places = sorted((row["brokerName"], row["queueId"], row["queueOffset"]) for row in found)
    times = [row["storedMs"] for row in found]
    return Picked(topic, tuple(Place(topic, *place) for place in places), min(times), max(times))


def read_picked(directory: Path) -> Picked | None:
    """Return the letters of the redrive in a directory, or None. Raises NotStarted."""
    path = directory / PICKED
    try:
        return msgspec.json.decode(path.read_bytes(), type=Picked)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise NotStarted(f"cannot read {path}: {error}. Choose another directory.") from None


def write_picked(directory: Path, picked: Picked) -> None:
    """Write the letters durably. Raises NotStarted if another process has begun a redrive there; OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{PICKED}.{uuid.uuid4().hex[:12]}"
    try:
        with hidden.open("wb") as file:
            file.write(msgspec.json.encode(picked))
            file.flush()
            os.fsync(file.fileno())
        os.link(hidden, directory / PICKED)  # fails if the name exists
    except FileExistsError:
        raise NotStarted(f"{directory} has become the directory of another redrive: choose another one") from None
    finally:
        hidden.unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def targets_of(topic: str, to_topic: str | None) -> Targets:
    """Return where letters of a dead-letter topic go. Raises NotStarted for an invalid name."""
    try:
        if to_topic is not None:
            return Targets(to_topic=to_topic)
    except ValueError as error:
        raise NotStarted(str(error)) from None
    return Targets() if topic.startswith(DLQ_PREFIX) else Targets(topic_property=ORIGIN_TOPIC)


def replay_of(picked: Picked, cluster: ClusterOptions, redrive: Redrive) -> Replay:
    """Return the replay that sends the letters. Raises NotStarted for an invalid `to_topic`."""
    return Replay(
        source=Topics(cluster),
        cluster=cluster,
        directory=str(redrive.directory),
        selection=Selection(
            topics=(picked.topic,),
            since_ms=picked.first_ms,
            until_ms=picked.last_ms + 1,
            places=picked.places,
        ),
        targets=targets_of(picked.topic, redrive.to_topic),
        rate=redrive.rate,
        limits=redrive.limits,
    )


def redriven(picked: Picked, done: replay.Summary) -> Redriven:
    """Return the summary of a run."""
    return Redriven(
        topic=picked.topic,
        picked=len(picked.places),
        sent=done.sent,
        sent_before=done.sent_before,
        missing=max(len(picked.places) - done.sent - done.sent_before, 0),
        stored_twice=done.doubles,
        topics=done.topics,
        map=done.map,
    )
