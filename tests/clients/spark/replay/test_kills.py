"""A replay whose process and whose broker are killed with SIGKILL, again and again: each message once."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from skylarkmq import Admin
from skylarkmq.clients.spark.replay.copies import MARK
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.spark.replay.world import rows
from tests.harness.daemon import running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import free_ports

pytestmark = pytest.mark.crash

PORTS: Final = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")
QUEUES, COUNT, RATE = 3, 2_000, 1_500
KILLS: Final = 3
SETTLE_S: Final = 0.4


def test_each_message_arrives_once_although_replay_and_broker_are_killed(tmp_path: Path) -> None:
    """Bodies and order are kept, and the map names each message once; the broker is killed during one of the runs."""
    old = [MessageQueue("Orders", "old", queue) for queue in range(QUEUES)]
    pq.write_table(rows(old, COUNT), tmp_path / "archive.parquet")
    (tmp_path / "broker").mkdir()
    chance = random.Random(21)
    settings = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with ExitStack() as stack:
        broker = stack.enter_context(running(directory=tmp_path / "broker", settings=settings))
        asyncio.run(create(broker.namesrv))
        sent = 0
        for kill in range(KILLS):
            with started(tmp_path, broker.namesrv) as process:
                sent = asyncio.run(wait_until_sent(broker.namesrv, sent + chance.randrange(100, 1_000), process))
                if kill == 1:
                    broker.stop(signal.SIGKILL)
                    stack.close()
                    broker = stack.enter_context(running(directory=tmp_path / "broker", settings=settings))
                    time.sleep(chance.uniform(0.1, 1.0))
                process.kill()
                process.wait()
        with started(tmp_path, broker.namesrv) as process:
            assert process.wait(WAIT_LIMIT_S + QUEUES * COUNT / RATE) == 0
        places = asyncio.run(stored(broker.namesrv))
    assert Counter(places.values()) == Counter({
        f"Orders:old:{queue.queue_id}:{2 * number}": 1 for queue in old for number in range(COUNT)
    })  # fmt: skip
    for queue in range(QUEUES):
        offsets = [int(place.rpartition(":")[2]) for (at, _), place in sorted(places.items()) if at == queue]
        assert offsets == [2 * number for number in range(COUNT)]
    mapped = pq.read_table(tmp_path / "replay" / "map").to_pylist()
    assert Counter(
        (row["newQueueId"], row["newQueueOffset"], f"Orders:old:{row['queueId']}:{row['queueOffset']}")
        for row in mapped
    ) == Counter((*at, place) for at, place in places.items())


def started(directory: Path, namesrv: str) -> "subprocess.Popen[bytes]":
    """Start the command."""
    command = [sys.executable, "-m", "skylarkmq.clients.spark.replay.command", "replay", "-n", namesrv]
    options = ["--archive", "archive.parquet", "--to-topic", "Again", "--rate", f"{RATE}/s", "--settle", str(SETTLE_S)]
    with (directory / "replay.log").open("ab") as log:
        return subprocess.Popen([*command, *options], cwd=directory, stdout=log, stderr=log, env=os.environ)


async def wait_until_sent(namesrv: str, count: int, process: "subprocess.Popen[bytes]") -> int:
    """Wait until the new topic has that many messages; return their number."""
    deadline = time.monotonic() + WAIT_LIMIT_S
    async with Admin(namesrv=namesrv) as admin:
        while (stored := sum(each.max_offset for each in (await admin.topic_offsets("Again")).values())) < count:
            assert process.poll() is None
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    return stored


async def create(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic("Again", QUEUES)


async def stored(namesrv: str) -> dict[tuple[int, int], str]:
    """Return for each place in the new topic the old place in the mark; bodies name the old place, too."""
    places = {}
    async with Admin(namesrv=namesrv) as admin:
        async for message in admin.messages_between(
            "Again", datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)
        ):
            place = message.properties[MARK].partition(":")[2]
            assert message.body == "Orders@old:{} {}".format(*place.split(":")[2:]).encode()
            places[message.queue_id, message.queue_offset] = place
    return places
