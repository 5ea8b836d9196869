"""One run of one seed: a daemon, its attacker, normal clients; kills, stops and starts; then the checks.

    outcome = run(seed, requests, directory)

In each session of the daemon the attacker, a separate process, sends its share of the requests over a few connections,
most of them pipelined, some of them cut off. A normal client sends, pulls, commits offsets, and sends delayed messages,
timers and transactions. SIGKILL or SIGTERM ends the session meanwhile. `Outcome.findings` contains violations of:

    kept        after each start, every acknowledged message is at its queue and offset with its body
    forward     a committed offset is not below the one that a clean stop has saved
    delivered   at the end, every acknowledged delayed message, timer and committed transaction is delivered
    foreign     the topics of normal clients contain no other message
    alive       normal messages are acknowledged in each session; the daemon ends only by a signal, after SIGTERM with
                exit code 0 and in time
    files, log, memory: see `Arena.findings`; `store verify` finds no damage after the last stop

With `access`, "4.9" or "5.3", the daemon has access control, normal clients sign their requests, and the attacker names
their topics too. Two more guarantees: `refused` (refusals.py) and `changed` (state.py). The output contains no secret.
"""

import random
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
from tests.attack.accounts import ADMINISTRATOR, GENERATIONS, NORMAL, SECRET_KEYS
from tests.attack.arena import Arena
from tests.attack.attacker import Attacker, Ports
from tests.attack.normal_clients import (
    BODY_MARK,
    BROKER_NAME,
    COMMIT,
    KEPT,
    LATER,
    OFFSETS,
    Ledger,
    pull_header,
    read_queue,
    send_header,
)
from tests.attack.state import State, changed, read_state
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import RawClient, RawResponse

SESSIONS: Final = 4
SETTINGS: Final[Sequence[Mapping[str, object]]] = (
    {},
    {},
    {"enabledAppendPropCRC": "true"},
    {"timerWheelEnable": "false"},
)


class Outcome(NamedTuple):
    """The result of a run; `p99_ms` is that of normal sends, under SYNC_FLUSH."""

    seed: int
    requests: int
    seconds: float
    p99_ms: float
    max_rss_bytes: int
    acknowledged: int
    findings: list[str]


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
        """Make one exchange; the first one has all of its parts. Raises OSError if the connection is lost."""
        self._number += 1
        body = BODY_MARK + b" %d " % self._number + b"x" * (self._number * 37 % 2_000)
        begun_s = time.monotonic()
        response = self._send(client, send_header(KEPT, {"KEYS": str(self._number)}, e=self._number % 4), body)
        self.latencies_s.append(time.monotonic() - begun_s)
        if response.code == ResponseCode.SUCCESS:
            self.kept.note(body, response.ext)
        else:
            self.refused += 1
        if self._number % 10 == 0:
            self._commit(client)
        if self._number % 25 == 1:
            self._later(client, {"DELAY": "1"} if self._number % 50 == 1 else {"TIMER_DELAY_MS": "1000"})
        if self._number % 40 == 1:
            self._transaction(client)

    def _send(self, client: RawClient, header: Mapping[str, object], body: bytes) -> RawResponse:
        return client.call(RequestCode.SEND_MESSAGE_V2, header, body)

    def _later(self, client: RawClient, properties: Mapping[str, str]) -> None:
        body = BODY_MARK + b", later %d" % self._number
        if self._send(client, send_header(LATER, properties), body).code == ResponseCode.SUCCESS:
            self.owed.add(zlib.crc32(body))

    def _transaction(self, client: RawClient) -> None:
        body, key = BODY_MARK + b", paid %d" % self._number, f"normal{self._number}"
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
        found = self.kept.missing(client) + self._foreign(client)
        if self.saved:
            fields = {"consumerGroup": OFFSETS, "topic": KEPT, "queueId": 0}
            response = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            now = int(response.ext.get("offset", -1))
            if now < self.saved:
                found.append(f"forward: offset {now} of {KEPT}/0 is below {self.saved}, which a clean stop has saved")
        return found

    def _foreign(self, client: RawClient) -> list[str]:
        """Return the messages in topics of normal clients that they have not sent."""
        records = [
            record for topic in (KEPT, LATER) for queue in range(4) for record in read_queue(client, topic, queue)
        ]
        bodies = [bytes(record.body) for record in records]
        return [f"foreign: {body[:100]!r}" for body in bodies if not body.startswith(BODY_MARK)][:3]

    def undelivered(self, client: RawClient) -> set[int]:
        """Return the CRCs of messages that are acknowledged for later delivery and not delivered yet."""
        delivered = {zlib.crc32(record.body) for queue in range(4) for record in read_queue(client, LATER, queue)}
        return self.owed - delivered


def run(
    seed: int,
    requests: int,
    directory: Path,
    *,
    access: str | None = None,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run one seed in `directory`, which must be empty. `access`: the generation of access control."""
    rng, begun_s = random.Random(seed), time.monotonic()
    settings = rng.choice(SETTINGS)
    if access is not None:
        settings = {**settings, **GENERATIONS[access].settings(directory / "watched"), "brokerName": BROKER_NAME}
    account = NORMAL if access else None
    arena = Arena(directory, prefix=prefix, environment=environment, account=account, **settings)
    normal, findings = NormalClient(), list[str]()
    try:
        with arena:
            if access is not None:
                GENERATIONS[access].prepare(arena.client(account=ADMINISTRATOR))
            for session in range(SESSIONS):
                plan = SessionPlan(f"{seed}/{session}", requests // SESSIONS, access)
                _run_session(arena, normal, plan, rng, findings)
                arena.start()
                findings += [f"after session {session}: {found}" for found in normal.violations(arena.client())]
            _finish(arena, normal, findings)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        findings.append(f"{type(error).__name__}: {str(error)[-2_000:]}")
        findings += arena.findings()
    if access is not None:
        findings += _secrets_in(arena)
    waits = normal.latencies_s
    p99_ms = 1000 * quantiles(waits, n=100)[98] if len(waits) > 1 else 0.0
    acknowledged = len(normal.kept.acknowledged)
    seconds = time.monotonic() - begun_s
    return Outcome(seed, requests, seconds, p99_ms, arena.max_rss_bytes, acknowledged, findings)


def run_in_scratch(seed: int, requests: int, access: str | None, environment: Mapping[str, str]) -> Outcome:
    """Run one seed in a temporary directory, for a separate process."""
    with tempfile.TemporaryDirectory(prefix=f"attack-{seed}-", ignore_cleanup_errors=True) as directory:
        return run(seed, requests, Path(directory), access=access, environment=environment)


class SessionPlan(NamedTuple):
    """One session: the seed and the number of requests, and the generation of access control."""

    seed: str
    requests: int
    access: str | None

    def state(self, arena: Arena) -> State:
        """Return what the attacker must not change; nothing without access control."""
        if self.access is None:
            return {}
        broker = arena.client(account=ADMINISTRATOR)
        return read_state(broker, arena.namesrv_client(account=ADMINISTRATOR), self.access)


def _run_session(
    arena: Arena, normal: NormalClient, plan: SessionPlan, rng: random.Random, findings: list[str]
) -> None:
    """Run one session of the daemon under attack, and end it by a signal."""
    before = len(normal.kept.acknowledged)
    client = arena.client()
    normal.step(client)
    state = plan.state(arena)
    ports = Ports(arena.broker_port, arena.daemon.namesrv_port)
    attacker = Attacker(ports, plan.seed, plan.requests, plan.access)
    attacker.start()
    try:
        while attacker.is_alive():
            client = _step(arena, normal, client)
            arena.rss_bytes()
            if (code := arena.daemon.process.poll()) is not None:
                raise AssertionError(f"alive: the daemon ended unexpectedly with {code}")
    finally:
        findings += attacker.end()
    findings += (f"session {plan.seed}: {found}" for found in changed(state, plan.state(arena)))
    if len(normal.kept.acknowledged) == before:
        findings.append(
            f"alive: no normal message was acknowledged in session {plan.seed}, {normal.refused} were refused"
        )
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
    client, end_s = arena.client(), time.monotonic() + WAIT_LIMIT_S
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


def _secrets_in(arena: Arena) -> list[str]:
    """Return the secrets in the output of the daemon."""
    output = arena.output.read_text(errors="replace")
    return [f"secret: the output contains {secret!r}" for secret in SECRET_KEYS if secret in output]
