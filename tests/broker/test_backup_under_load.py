"""A backup of a daemon that stores messages all the time, restored to an empty directory and served by a daemon."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.broker.store.fsck.findings import Findings, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode
from tests.broker.test_failures import PULL, SEND
from tests.harness.daemon import MQBROKER, STORE, Daemon, running
from tests.harness.golden_stores import golden_store
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient

pytestmark = pytest.mark.daemon

SEGMENT_BYTES: Final = 1 << 20
TOPIC: Final = "Loaded"
QUEUES: Final = 4
BODY_BYTES: Final = 10_000
MESSAGES: Final = 150
PAUSE_S: Final = 0.005


class Load:
    """Sends messages, about 2 MB/s, until it is stopped. `acknowledged`: (queue id, queue offset) -> body."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._is_stopped = threading.Event()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        with RawClient(LOOPBACK, self._daemon.broker_port, timeout=WAIT_LIMIT_S) as client:
            for number in count():
                if self._is_stopped.wait(PAUSE_S):
                    return
                body = b"%d:" % number + bytes(BODY_BYTES)
                response = client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": TOPIC, "e": number % QUEUES}, body)
                assert response.code == ResponseCode.SUCCESS, response
                self.acknowledged[int(response.ext["queueId"]), int(response.ext["queueOffset"])] = body

    def wait_for(self, messages: int) -> None:
        """Wait until so many more messages are acknowledged."""
        target, deadline = len(self.acknowledged) + messages, time.monotonic() + PROCESS_LIMIT_S
        while len(self.acknowledged) < target:
            assert self._thread.is_alive(), self._daemon.output
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_stopped.set()
            self._thread.join()


def store_arguments(*arguments: object) -> list[str]:
    return [*MQBROKER, "store", *map(str, arguments)]


def store_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `mqbroker store`; it must succeed."""
    command = store_arguments(*arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done


def backed_up(store: Path, target: Path) -> dict[str, Any]:
    """Run a backup and return its result."""
    result: dict[str, Any] = json.loads(store_command("backup", target, "--store", store, "--json").stdout)
    return result


def records(root: Path, end: int) -> list[tuple[int, bytes]]:
    """Return offset and bytes of each record of a log before byte `end`."""
    check = LogCheck(root, SEGMENT_BYTES, Findings(), crashed=True, progress=no_progress)
    return [
        (record.physical_offset, bytes(record.source[record.position : record.position + record.size]))
        for batch in check.records()
        for record in batch
        if record.physical_offset < end
    ]


def messages(daemon: Daemon) -> dict[tuple[int, int], bytes]:
    """Return all messages of the topic, by queue id and queue offset."""
    found: dict[tuple[int, int], bytes] = {}
    with RawClient(LOOPBACK, daemon.broker_port, timeout=WAIT_LIMIT_S) as client:
        for queue_id in range(QUEUES):
            pulled: list[MessageExt] = []
            while (more := pull(client, queue_id, len(pulled))) is not None:
                pulled += more
            found |= {(queue_id, message.queue_offset): message.body for message in pulled}
    return found


def pull(client: RawClient, queue_id: int, offset: int) -> list[MessageExt] | None:
    response = client.call(
        RequestCode.PULL_MESSAGE, PULL | {"topic": TOPIC, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32}
    )
    return decode(response.body) if response.code == ResponseCode.SUCCESS else None


def commit(daemon: Daemon, offset: int) -> None:
    with RawClient(LOOPBACK, daemon.broker_port) as client:
        pull(client, 0, 0)
        ext = {"consumerGroup": PULL["consumerGroup"], "topic": TOPIC, "queueId": 0, "commitOffset": offset}
        assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == ResponseCode.SUCCESS


def committed(daemon: Daemon) -> int:
    with RawClient(LOOPBACK, daemon.broker_port) as client:
        ext = {"consumerGroup": PULL["consumerGroup"], "topic": TOPIC, "queueId": 0}
        return int(client.call(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"])


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_backup_under_load_has_every_record_up_to_its_end(tmp_path: Path, flush: str) -> None:
    """A first backup and a later one of the same daemon; the restored store is clean, and serves all of it."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    settings = {"flushDiskType": flush, "flushConsumerOffsetInterval": 100}
    with running(MQBROKER, old, settings) as daemon:
        load = Load(daemon)
        with load.running():
            load.wait_for(MESSAGES)
            commit(daemon, 20)
            first = backed_up(old / "store", tmp_path / "backup")
            load.wait_for(MESSAGES)
            before = dict(load.acknowledged)
            second = backed_up(old / "store", tmp_path / "backup")
            load.wait_for(MESSAGES)
        assert daemon.stop() == 0
    end = second["logEnd"]
    assert first["logEnd"] < end
    assert second["copiedBytes"] + second["sharedBytes"] == end - first["logEnd"]
    restored = json.loads(store_command("restore", tmp_path / "backup", "--to", new / "store", "--json").stdout)
    assert (restored["logEnd"], restored["missing"], restored["cut"]) == (end, [], [])
    expected = records(old / "store", end)
    assert records(new / "store", end + SEGMENT_BYTES) == expected
    assert restored["records"] == len(expected)
    assert store_command("verify", new / "store").stderr == f"{new / 'store'}: clean\n"
    with running(MQBROKER, new, settings) as daemon:
        served = messages(daemon)
        assert before.items() <= served.items() <= load.acknowledged.items()
        assert len(served) == len(expected)
        assert committed(daemon) == 20
        with RawClient(LOOPBACK, daemon.broker_port) as client:
            response = client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": TOPIC, "e": 0}, b"after")
        assert int(response.ext["queueOffset"]) == sum(queue_id == 0 for queue_id, _ in served)
        assert daemon.stop() == 0


def test_a_broker_refuses_a_restore_that_was_killed(tmp_path: Path) -> None:
    """Killed by SIGKILL during the copy. The daemon exits with one line; the same restore then starts again.

    While the restore runs, another one to the same directory is refused."""
    golden = golden_store("4.9.8", "clean", tmp_path / "golden")
    store_command("backup", tmp_path / "backup", "--store", golden.root)
    restore = store_arguments("restore", tmp_path / "backup", "--to", tmp_path / STORE)
    deadline = time.monotonic() + PROCESS_LIMIT_S
    with subprocess.Popen([*restore, "--rate", "0.0001"]) as process:
        while not list(tmp_path.glob(f"{STORE}/restoring/commitlog/*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        other = subprocess.run(restore, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False)
        process.kill()
    problem = f"another restore is writing to {tmp_path / STORE}: wait until it has ended"
    assert (other.returncode, other.stderr) == (2, f"mqbroker store restore: {problem}\n")
    with running(MQBROKER, tmp_path, is_awaited=False) as daemon:
        assert daemon.process.wait(PROCESS_LIMIT_S) == 1
        assert daemon.output.splitlines()[-1].endswith("(restoring/): wait until it has ended, or repeat it")
    assert os.listdir(tmp_path / STORE) == ["restoring"]
    assert subprocess.run(restore, check=True, capture_output=True, text=True).stdout.count("\n") == 3
    store_command("verify", tmp_path / STORE)
