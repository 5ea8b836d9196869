"""The effects of failures on clients and operators of a running daemon: docs/reference/behaviour.md, "Failures".

A broker in this process, with real sockets, on a disk that fails on demand.
"""

import asyncio
import errno
import json
import os
import resource
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.app import daemon
from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.base.errors import DaemonEnded, StartError
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.broker.store import message_store
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.disk import offset_file_name
from skylarkmq.protocol.record import decode
from tests.harness.daemon import MQBROKER, Daemon, running, variables
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient, RawResponse
from tests.harness.stores import TestDisk
from tests.harness.waiting import until

pytestmark = pytest.mark.daemon

SEGMENT_BYTES = 65_536
PULL = {
    "consumerGroup": "CG", "topic": "T", "queueId": 0, "maxMsgNums": 32, "commitOffset": 0, "sysFlag": 4,
    "suspendTimeoutMillis": 0, "subVersion": 1, "subscription": "*",
}  # fmt: skip
SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False}


class Outside:
    """A broker as its clients and its operator see it."""

    def __init__(self, broker: Broker, port: int, health_port: int) -> None:
        self.broker = broker
        self._port = port
        self._health_port = health_port

    async def call(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> RawResponse:
        def call() -> RawResponse:
            with RawClient(LOOPBACK, self._port) as client:
                return client.call(code, ext, body)

        return await asyncio.to_thread(call)

    async def send(self, body: bytes = b"hello") -> RawResponse:
        return await self.call(RequestCode.SEND_MESSAGE_V2, SEND, body)

    async def pull(self, offset: int = 0) -> list[bytes]:
        response = await self.call(RequestCode.PULL_MESSAGE, PULL | {"queueOffset": offset})
        assert response.code == ResponseCode.SUCCESS, response
        return [message.body for message in decode(response.body)]

    async def ready(self) -> tuple[int, dict[str, str]]:
        """Return status and checks of /readyz."""
        return await asyncio.to_thread(self._ready)

    def _ready(self) -> tuple[int, dict[str, str]]:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._health_port}/readyz", timeout=WAIT_LIMIT_S) as page:
                return page.status, json.load(page)["checks"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["checks"]

    async def back(self) -> None:
        """Wait until the broker accepts messages again."""
        await until(lambda: self.broker.parts.store.is_writable)


Open = Callable[..., Any]


@pytest.fixture
def disk() -> TestDisk:
    return TestDisk()


@pytest.fixture
def start(tmp_path: Path, disk: TestDisk, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Start a broker on the failing disk, on the same directory each time."""
    monkeypatch.setattr(message_store, "Disk", lambda: disk)

    @asynccontextmanager
    async def start(**settings: object) -> AsyncIterator[Outside]:
        ports = dict(zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True))
        chosen = {
            "storePathRootDir": tmp_path / "store",
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            "mappedFileSizeConsumeQueue": 400,
            "maxHashSlotNum": 100,
            "maxIndexNum": 400,
            **ports,
            **settings,
        }
        machine = Machine(host_name="h", address=LOOPBACK, home=tmp_path, resolve=lambda host: host)
        broker = Broker(load_broker([Given(key, str(text), "test") for key, text in chosen.items()], machine).config)
        await broker.start()
        try:
            yield Outside(broker, ports["listenPort"], ports["metricsPromExporterPort"])
        finally:
            await broker.stop()

    return start


def refuse(disk: TestDisk, code: int, *calls: str, path: str = "/commitlog/") -> None:
    """Make these calls fail on files of this path from now on."""

    def check(call: str, at: str) -> None:
        if call in calls and path in at:
            raise OSError(code, os.strerror(code))

    disk.refuse = check


def heal(disk: TestDisk) -> None:
    disk.refuse = lambda call, path: None


async def test_after_a_failed_sync_the_store_is_read_only(start: Open, disk: TestDisk, tmp_path: Path) -> None:
    """No unsynced message is acknowledged; the broker is read-only until a restart, which recovers from the disk."""
    async with start(flushDiskType="SYNC_FLUSH") as broker:
        assert (await broker.send(b"safe")).code == ResponseCode.SUCCESS
        refuse(disk, errno.EIO, "fdatasync")
        waiting = await broker.send(b"perhaps")
        assert waiting.code == ResponseCode.SERVICE_NOT_AVAILABLE
        heal(disk)
        assert (await broker.send(b"refused")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        status, checks = await broker.ready()
        assert (status, checks["store"]) == (
            503,
            "a sync failed, a restart is needed to recover the state of the disk ([Errno 5] Input/output error)",
        )
        assert await broker.pull() == [b"safe"]
    assert (tmp_path / "store" / "abort").exists()
    async with start(flushDiskType="SYNC_FLUSH") as broker:
        assert (await broker.ready())[0] == 200
        assert (await broker.pull())[0] == b"safe"
        assert (await broker.send(b"again")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("reason", ["", "the store has to be restarted"])
async def test_a_stop_that_cannot_save_has_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """A full disk at the stop: the daemon ends with a line for stderr, and the reason why it had to end comes first."""

    async def first_of(_stop: asyncio.Event, failure: "asyncio.Future[DaemonEnded]") -> None:
        def refuse_save(_file: StateFile, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(StateFile, "save", refuse_save)
        if reason:
            failure.set_result(DaemonEnded(reason, may_restart=False))

    monkeypatch.setattr(daemon, "_first_of", first_of)
    ports = zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True)
    settings = {"storePathRootDir": tmp_path / "store", "mappedFileSizeCommitLog": SEGMENT_BYTES, **dict(ports)}
    machine = Machine(host_name="h", address=LOOPBACK, home=tmp_path, resolve=lambda host: host)
    loaded = load_broker([Given(key, str(value), "test") for key, value in settings.items()], machine)
    with pytest.raises(DaemonEnded) as ended:
        await daemon.serve(loaded, asyncio.Event())
    unsaved = "the last changes of tables or offsets are not saved: [Errno 28] No space left on device"
    assert str(ended.value) == (reason or unsaved)
    assert ended.value.may_restart == (reason == "")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
async def test_an_unwritable_log_refuses_messages_and_recovers(start: Open, disk: TestDisk, code: int) -> None:
    """Full or read-only: refused with the measured ratios; reads continue; the broker recovers without a restart."""
    async with start() as broker:
        assert (await broker.send(b"before")).code == ResponseCode.SUCCESS
        refuse(disk, code, "pwrite")
        for _ in range(2):
            response = await broker.send(b"refused")
            assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert response.remark is not None
            assert "[CL:  0.50 CQ:  0.50 INDEX:  0.50]" in response.remark
        status, checks = await broker.ready()
        assert (status, checks["store"]) == (503, f"the log cannot be written ([Errno {code}] {os.strerror(code)})")
        assert await broker.pull() == [b"before"]
        heal(disk)
        await broker.back()
        assert (await broker.send(b"after")).code == ResponseCode.SUCCESS
        assert await broker.pull() == [b"before", b"after"]
        assert (await broker.ready())[0] == 200


async def test_another_write_error_affects_one_message(start: Open, disk: TestDisk) -> None:
    """Only this message fails."""
    async with start() as broker:
        assert (await broker.send(b"before")).code == ResponseCode.SUCCESS
        refuse(disk, errno.EIO, "pwrite")
        response = await broker.send(b"failed")
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR")
        heal(disk)
        assert (await broker.send(b"after")).code == ResponseCode.SUCCESS
        assert await broker.pull() == [b"before", b"after"]


async def test_without_space_for_another_segment(start: Open, disk: TestDisk) -> None:
    """A message that does not fit is refused with code 1, one that fits is stored, reads continue; no restart is
    needed."""
    async with start() as broker:
        large = b"x" * 40_000
        assert (await broker.send(large)).code == ResponseCode.SUCCESS
        refuse(disk, errno.ENOSPC, "create")
        codes = [(await broker.send(large)).code for _ in range(4)]  # some segments may have been made before
        assert codes[-1] == ResponseCode.SYSTEM_ERROR
        stored = 1 + codes.count(0)
        response = await broker.send(large)
        assert response.remark == "create mapped file failed, server is busy or broken."
        assert (await broker.send(b"small")).code == ResponseCode.SUCCESS
        status, checks = await broker.ready()
        assert status == 503
        assert checks["store"].startswith("the log's next segment cannot be created")
        assert await broker.pull(stored) == [b"small"]
        heal(disk)
        await broker.back()
        assert (await broker.send(large)).code == ResponseCode.SUCCESS


async def test_a_full_disk_refuses_messages(start: Open, disk: TestDisk) -> None:
    """Above the warning ratio: code 14 with the measured ratios; below it messages are accepted again."""
    async with start(cleanResourceInterval=50, queueUnitsInMemory=0) as broker:
        assert (await broker.send(b"before")).code == ResponseCode.SUCCESS
        disk.used = lambda path: 97 if path.endswith("consumequeue") else 91
        await until(lambda: not broker.broker.parts.store.is_writable)
        response = await broker.send(b"refused")
        assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert response.remark is not None
        assert "[CL:  0.91 CQ:  0.97 INDEX:  0.91]" in response.remark
        assert (await broker.ready())[1]["store"] == "the disk is too full (97 percent used, 90 are allowed)"
        assert await broker.pull() == [b"before"]
        disk.used = lambda path: 90
        await broker.back()
        assert (await broker.send(b"after")).code == ResponseCode.SUCCESS


async def test_without_a_descriptor_for_a_queue(start: Open, disk: TestDisk) -> None:
    """Its units wait, new messages are refused, and when there is a descriptor again nothing is missing."""
    async with start(queueUnitsInMemory=0) as broker:
        assert (await broker.send(b"before")).code == ResponseCode.SUCCESS
        broker.broker.parts.store._parts._queue_files.close()  # as if the cache had evicted it
        refuse(disk, errno.EMFILE, "open", path="/consumequeue/")
        assert (await broker.send(b"stored")).code == ResponseCode.SUCCESS
        refused = await broker.send(b"refused")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no file descriptor left" in (refused.remark or "")
        assert "disk is full" not in (refused.remark or "")
        assert (await broker.ready())[1]["store"].startswith("queue units cannot be written")
        heal(disk)
        await broker.back()
        assert (await broker.send(b"after")).code == ResponseCode.SUCCESS
        assert await broker.pull() == [b"before", b"stored", b"after"]


@pytest.mark.daemon
def test_a_daemon_with_few_descriptors_serves_its_clients(tmp_path: Path) -> None:
    """Connected clients are served; one client too many is closed; after some leave, all requests succeed."""
    with running(directory=tmp_path, settings={"defaultTopicQueueNums": 64}, preexec_fn=few_descriptors) as daemon:
        with client_of(daemon) as first:
            for number in range(64):
                ext = SEND | {"d": 64, "e": number}
                assert first.call(RequestCode.SEND_MESSAGE_V2, ext, b"%d" % number).code == ResponseCode.SUCCESS
            clients = too_many_clients(daemon)
            for number in range(64):
                ext = PULL | {"queueId": number, "queueOffset": 0}
                response = first.call(RequestCode.PULL_MESSAGE, ext)
                assert [message.body for message in decode(response.body)] == [b"%d" % number]
            for client in clients:
                client.__exit__(None, None, None)
            daemon.wait_ready()
            for number in range(64):
                ext = SEND | {"d": 64, "e": number}
                assert first.call(RequestCode.SEND_MESSAGE_V2, ext, b"again").code == ResponseCode.SUCCESS
        assert daemon.stop() == 0


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))


def client_of(daemon: Daemon) -> RawClient:
    return RawClient(LOOPBACK, daemon.broker_port)


def too_many_clients(daemon: Daemon) -> list[RawClient]:
    """Return as many clients as the daemon accepts, and one that it closes."""
    clients = []
    for _ in range(200):
        client = client_of(daemon)
        clients.append(client)
        try:
            client.call(99_999)
        except ConnectionError:
            return clients
    raise AssertionError("the daemon accepts every client")


def start_line(directory: Path, *flags: str) -> str:
    """Return the line that a daemon prints when it does not start."""
    settings = dict(zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True))
    sizes = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "mappedFileSizeConsumeQueue": 400}
    ended = subprocess.run(
        [*MQBROKER, *flags],
        cwd=directory,
        env=variables(settings | sizes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PROCESS_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 1
    return ended.stderr.rstrip("\n")


async def filled(start: Open, count: int = 20) -> None:
    """Store messages in six segments of the log: three or four in each."""
    async with start() as broker:
        for number in range(count):
            assert (await broker.send(b"%d " % number + bytes(20_000))).code == ResponseCode.SUCCESS


@pytest.mark.daemon
async def test_a_segment_of_the_wrong_size_stops_the_start(start: Open, tmp_path: Path) -> None:
    """The line names the file and both sizes."""
    await filled(start)
    path = Path("store/commitlog") / offset_file_name(SEGMENT_BYTES)
    os.truncate(tmp_path / path, 5_000)
    assert start_line(tmp_path) == f"mqbroker: {path} has 5000 bytes, the configured size is {SEGMENT_BYTES}"


@pytest.mark.daemon
async def test_a_missing_segment_stops_the_start_unless_forced(start: Open, tmp_path: Path) -> None:
    """The line names the gap; with --force-gap the daemon serves the rest."""
    await filled(start)
    (tmp_path / "store" / "commitlog" / offset_file_name(SEGMENT_BYTES)).unlink()
    name = offset_file_name(SEGMENT_BYTES)
    assert start_line(tmp_path) == (
        f"mqbroker: store/commitlog: bytes {SEGMENT_BYTES} to {2 * SEGMENT_BYTES} are missing, files {name} to {name}; "
        "mqbroker --force-gap serves the rest"
    )
    settings = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "mappedFileSizeConsumeQueue": 400}
    with (
        running([*MQBROKER, "--force-gap"], tmp_path, settings, must_be_consistent=False) as daemon,
        client_of(daemon) as client,
    ):
        sent = client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"20 ")
        assert sent.ext["queueOffset"] == "20"
        assert numbers_read(client) == [0, 1, 2, *range(6, 21)]


def numbers_read(client: RawClient) -> list[int]:
    """Return every message of the queue, as a consumer that follows the responses reads them."""
    numbers: list[int] = []
    offset = "0"
    while True:
        response = client.call(RequestCode.PULL_MESSAGE, PULL | {"queueOffset": offset})
        if response.code == ResponseCode.PULL_NOT_FOUND:
            return numbers
        assert response.code in {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}, response
        numbers += [int(message.body[:3].split()[0]) for message in decode(response.body)]
        offset = response.ext["nextBeginOffset"]


@pytest.mark.daemon
async def test_damaged_state_files_are_restored_or_stop_the_start(
    start: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The backup is used, with a warning; without a valid one the daemon prints the reason and does not start."""
    async with start() as broker:
        for topic in ("T", "U"):
            assert (await broker.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic})).code == ResponseCode.SUCCESS
    path = tmp_path / "store" / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:100])
    async with start() as broker:
        assert (await broker.ready())[0] == 200
    assert "state file damaged" in caplog.text
    assert "state file taken from backup" in caplog.text
    for damaged in (path, path.with_name("topics.json.bak")):
        damaged.write_bytes(b"{")
    with pytest.raises(StartError, match="state file and its backup are damaged"):
        async with start():
            pass
    assert start_line(tmp_path).startswith("mqbroker: state file and its backup are damaged: store/config/topics.json")
