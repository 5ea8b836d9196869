"""One run of one seed: a daemon, its attacker, normal clients; kills, stops and starts; then the checks.

    outcome = run(seed, requests, directory)

In each session of the daemon the attacker, a separate process, sends its share of the requests over a few connections,
most of them pipelined, some of them cut off. A normal client sends, pulls, commits offsets, and sends delayed messages,
timers and transactions. SIGKILL or SIGTERM ends the session meanwhile. `Outcome.findings` contains violations of:

    kept        after each start, every acknowledged message is at its queue and offset with its body
    forward     a committed offset is not below the one that a clean stop has saved
    delivered   at the end, every acknowledged delayed message, timer and committed transaction is delivered
    alive       normal messages are acknowledged in each session; the daemon ends only by a signal, after SIGTERM with
                exit code 0 and in time
    files, log, memory: see `Arena.findings`; `store verify` finds no damage after the last stop
"""

import multiprocessing
import random
import select
import socket
import subprocess
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from skylarkmq.broker.store.fsck import Severity
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.attack.arena import Arena
from tests.attack.generators import Generator
from tests.attack.normal_clients import COMMIT, KEPT, LATER, Ledger, pull_header, read_queue, send_header
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse

SESSIONS: Final = 4
CONNECTIONS: Final = 6
PIECE: Final = 40
"""Maximum number of requests that are written at once on one connection."""
DELIVERY_LIMIT_S: Final = 20.0
OFFSETS: Final = "normal"
SETTINGS: Final[Sequence[Mapping[str, object]]] = (
    {},
    {},
    {"enabledAppendPropCRC": "true"},
    {"timerWheelEnable": "false"},
)

_processes: Final = multiprocessing.get_context("fork")


class Outcome(NamedTuple):
    """The result of a run; `p99_ms` is that of normal sends, under SYNC_FLUSH."""

    seed: int
    requests: int
    seconds: float
    p99_ms: float
    max_rss_bytes: int
    acknowledged: int
    findings: list[str]


def attack(port: int, namesrv_port: int, seed: str, count: int) -> None:
    """Send `count` unusual requests; a connection that the daemon closes is replaced. Ends early if the daemon is
    gone."""
    generator, rng = Generator(seed), random.Random(seed)
    peers: list[socket.socket] = []
    sent = 0
    while sent < count:
        try:
            while len(peers) < CONNECTIONS:
                to = namesrv_port if rng.random() < 0.2 else port
                peers.append(socket.create_connection((LOOPBACK, to), 10.0))
        except OSError:
            return
        peer = rng.choice(peers)
        odd = [generator.request() for _ in range(rng.randint(1, PIECE))]
        end = next((n for n, request in enumerate(odd) if request.ends), None)
        piece = odd if end is None else odd[: end + 1]
        sent += len(piece)
        if not _exchange(peer, b"".join(request.data for request in piece)) or end is not None:
            peer.close()
            peers.remove(peer)


def _exchange(peer: socket.socket, data: bytes) -> bool:
    """Write all data while reading responses; return whether the connection is open. Waits briefly for a first
    response."""
    view, limit_s = memoryview(data), time.monotonic() + 5.0
    wait_s = 0.05
    while time.monotonic() < limit_s:
        readable, writable, _ = select.select([peer], [peer] if view else [], [], wait_s)
        try:
            if readable:
                if not peer.recv(1 << 18):
                    return False
                if not view:
                    return True
            if writable:
                view = view[peer.send(view[: 1 << 18]) :]
        except OSError:
            return False
        if not readable and not writable:
            return not view
    return False


class NormalClient:
    """The state of one normal client over all sessions."""

    def __init__(self) -> None:
        self.kept = Ledger(KEPT)
        self.owed: set[int] = set()
        self.committed = self.saved = 0
        self.latencies_s: list[float] = []
        self.refused = 0
        self._number = 0

    def __repr__(self) -> str:
        return f"<NormalClient {len(self.kept.acknowledged)} acknowledged>"

    def step(self, client: RawClient) -> None:
        """Make one exchange. Raises OSError if the connection is lost."""
        self._number += 1
        body = b"normal %d " % self._number + b"x" * (self._number * 37 % 2_000)
        begun_s = time.monotonic()
        response = self._send(client, send_header(KEPT, {"KEYS": str(self._number)}, e=self._number % 4), body)
        self.latencies_s.append(time.monotonic() - begun_s)
        if response.code == ResponseCode.SUCCESS:
            self.kept.note(body, response.ext)
        else:
            self.refused += 1
        if self._number % 10 == 0:
            self._commit(client)
        if self._number % 25 == 0:
            self._later(client, {"DELAY": "1"} if self._number % 50 else {"TIMER_DELAY_MS": "1000"})
        if self._number % 40 == 0:
            self._transaction(client)

    def _send(self, client: RawClient, header: Mapping[str, object], body: bytes) -> RawResponse:
        return client.call(RequestCode.SEND_MESSAGE_V2, header, body)

    def _later(self, client: RawClient, properties: Mapping[str, str]) -> None:
        body = b"later %d" % self._number
        if self._send(client, send_header(LATER, properties), body).code == ResponseCode.SUCCESS:
            self.owed.add(zlib.crc32(body))

    def _transaction(self, client: RawClient) -> None:
        body, key = b"paid %d" % self._number, f"normal{self._number}"
        half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key}
        response = self._send(client, send_header(LATER, half, f=4), body)
        if response.code != ResponseCode.SUCCESS:
            return
        decision = {
            "producerGroup": "P", "tranStateTableOffset": response.ext["queueOffset"], "msgId": key,
            "commitLogOffset": int(response.ext["msgId"][16:], 16), "commitOrRollback": COMMIT,
            "fromTransactionCheck": "false", "transactionId": key,
        }  # fmt: skip
        if client.call(RequestCode.END_TRANSACTION, decision).code == ResponseCode.SUCCESS:
            self.owed.add(zlib.crc32(body))

    def _commit(self, client: RawClient) -> None:
        offset = sum(queue_id == 0 for queue_id, _ in self.kept.acknowledged)
        client.call(RequestCode.PULL_MESSAGE, pull_header(KEPT, max(offset - 1, 0), consumerGroup=OFFSETS))
        fields = {"consumerGroup": OFFSETS, "topic": KEPT, "queueId": 0}
        response = client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": offset})
        if response.code == ResponseCode.SUCCESS:
            self.committed = offset

    def violations(self, client: RawClient) -> list[str]:
        """Return the violations after a start."""
        found = self.kept.missing(client)
        if self.saved:
            fields = {"consumerGroup": OFFSETS, "topic": KEPT, "queueId": 0}
            response = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            now = int(response.ext.get("offset", -1))
            if now < self.saved:
                found.append(f"forward: offset {now} of {KEPT}/0 is below {self.saved}, which a clean stop has saved")
        return found

    def undelivered(self, client: RawClient) -> set[int]:
        """Return the CRCs of messages that are acknowledged for later delivery and not delivered yet."""
        delivered = {zlib.crc32(record.body) for queue in range(4) for record in read_queue(client, LATER, queue)}
        return self.owed - delivered


def run(
    seed: int,
    requests: int,
    directory: Path,
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run one seed in `directory`, which must be empty."""
    rng, begun_s = random.Random(seed), time.monotonic()
    arena = Arena(directory, prefix=prefix, environment=environment, **rng.choice(SETTINGS))
    normal, findings = NormalClient(), list[str]()
    try:
        with arena:
            for session in range(SESSIONS):
                _run_session(arena, normal, f"{seed}/{session}", requests // SESSIONS, rng, findings)
                arena.start()
                findings += [f"after session {session}: {found}" for found in normal.violations(arena.client())]
            _finish(arena, normal, findings)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        findings.append(f"{type(error).__name__}: {str(error)[-2_000:]}")
        findings += arena.findings()
    waits = normal.latencies_s
    p99_ms = 1000 * quantiles(waits, n=100)[98] if len(waits) > 1 else 0.0
    acknowledged = len(normal.kept.acknowledged)
    seconds = time.monotonic() - begun_s
    return Outcome(seed, requests, seconds, p99_ms, arena.max_rss_bytes, acknowledged, findings)


def run_in_scratch(seed: int, requests: int, environment: Mapping[str, str]) -> Outcome:
    """Run one seed in a temporary directory, for a separate process."""
    with tempfile.TemporaryDirectory(prefix=f"attack-{seed}-", ignore_cleanup_errors=True) as directory:
        return run(seed, requests, Path(directory), environment=environment)


def _run_session(
    arena: Arena, normal: NormalClient, seed: str, count: int, rng: random.Random, findings: list[str]
) -> None:
    """Run one session of the daemon under attack, and end it by a signal."""
    before = len(normal.kept.acknowledged)
    client = arena.client()
    normal.step(client)
    attacker = _processes.Process(target=attack, args=(arena.broker_port, arena.daemon.namesrv_port, seed, count))
    attacker.start()
    try:
        while attacker.is_alive():
            client = _step(arena, normal, client)
            arena.rss_bytes()
            if (code := arena.daemon.process.poll()) is not None:
                raise AssertionError(f"alive: the daemon ended unexpectedly with {code}")
    finally:
        attacker.kill()
        attacker.join()
    if len(normal.kept.acknowledged) == before:
        findings.append(f"alive: no normal message was acknowledged in session {seed}, {normal.refused} were refused")
    if rng.random() < 0.6:
        arena.kill()
    elif code := arena.stop():
        findings.append(f"alive: exit code {code} after SIGTERM")
    else:
        normal.saved = normal.committed


def _step(arena: Arena, normal: NormalClient, client: RawClient) -> RawClient:
    """Make one normal exchange; return another connection if the old one is lost."""
    try:
        normal.step(client)
    except OSError:
        normal.refused += 1
        return arena.client()
    return client


def _finish(arena: Arena, normal: NormalClient, findings: list[str]) -> None:
    """Wait for all messages that are owed by now, stop, and check the result. Meanwhile the normal client continues."""
    client, end_s = arena.client(), time.monotonic() + DELIVERY_LIMIT_S
    due = set(normal.owed)
    while (owed := due & normal.undelivered(client)) and time.monotonic() < end_s:
        normal.step(client)
    if owed:
        findings.append(f"delivered: {len(owed)} of {len(due)} messages are not delivered")
    if code := arena.stop():
        findings.append(f"alive: exit code {code} after SIGTERM")
    findings += arena.findings()
    damage = (finding for finding in arena.store_findings() if finding.severity is Severity.DAMAGE)
    findings += (f"store verify: {finding.file}:{finding.offset}: {finding.what}" for finding in damage)
