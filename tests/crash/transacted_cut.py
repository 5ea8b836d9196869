"""Transactions and power cuts: one seed is one store that goes through several sessions with different ends.

    python -m tests.crash.transacted_cut --seeds 100000 --jobs 2     prints failing seeds, and a summary at the end
    python -m tests.crash.transacted_cut --seed 4711                 only this seed, with every step

Every transaction has a fixed outcome, commit or rollback, which all of its producers return. A session sends half
messages, ends some by the position of any of their copies, checks others, lets flushers run, saves the offsets, and
ends by a clean stop, a kill, or a power cut at a system call chosen by the seed. At the end all are checked until none
is open. Then these checks follow:

    never lost     a half message that was acknowledged under SYNC_FLUSH, or flushed, is delivered if it is committed,
                   even if its end was in progress when the process ended
    never wrong    no message is delivered that was rolled back or never sent
    not repeated   unless a process ended other than by a clean stop
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from skylarkmq.broker.app.sections.delivery import TransactionEnds
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.delivery.transactions.check_round import CheckRound, CheckTotals
from skylarkmq.broker.delivery.transactions.ending import Ending
from skylarkmq.broker.delivery.transactions.loading import Loading
from skylarkmq.broker.delivery.transactions.messages import QUEUE_ID
from skylarkmq.broker.delivery.transactions.progress import Offsets
from skylarkmq.broker.delivery.transactions.transactions import Transactions, TransactionsConfig
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.message import encode_properties
from skylarkmq.protocol.record import Buffer, Record, parse
from tests.crash.expected_state import log_of
from tests.crash.sessions import StoreSessionsWithOffsets
from tests.crash.trial import Trial
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import BORN_HOST, message

HALF: Final = SystemTopic.TRANSACTION_HALF
OP: Final = SystemTopic.TRANSACTION_OP
TOPICS: Final = ("A", "B")
INTERVAL_MS: Final = 10_000


class Sent(msgspec.Struct):
    """A transaction: its outcome, its half message, and the positions of it and its copies that producers have."""

    is_commit: bool
    append: Append
    positions: list[int]
    is_owed: bool = False
    is_ended: bool = False  # the producer got the response


class FakeProducer:
    """Replaces a producer's connection; keeps the transaction checks that it receives."""

    closed = paused = False
    backlog_bytes = 0

    def __init__(self) -> None:
        self.checks: list[RemotingCommand] = []
        self.push = self.checks.append


class TransactedRun(StoreSessionsWithOffsets):
    """One run; the seed decides everything. `log_step` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, log_step: Callable[[str], None]) -> None:
        super().__init__(f"transacted {seed}", scratch, helpers, log_step)
        self.sent: dict[int, Sent] = {}
        self.of_this_session: list[Sent] = []
        self.ending: list[Ending] = []  # of this batch
        self.actions |= {
            self._send: 10,
            self._end_some: 14,
            self._check_round: 5,
            self.flush: 10,
            self.save: 5,
            self.helpers.make_segments: 2,
        }

    # session

    def open(self) -> None:
        self.of_this_session, self.ending = [], []
        for sent in self.sent.values():
            if sent.is_ended:  # producers may repeat an end within a session, later only after a check
                sent.positions.clear()
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        self.log_step(f"recovered {self.store.load()}")
        self.disk.revive()
        path = self.root / "config" / "consumerOffset.json"
        self.file = StateFile(path, validate=ConsumerOffsets.decode, disk=self.disk)
        self.offsets = ConsumerOffsetTable(OffsetsConfig(), self.clock)
        self.offsets.load(self.file.load())
        self.store.start()
        config = TransactionsConfig(broker_ip="", broker_name="b", store_host=BORN_HOST, transaction_check_max=1_000)
        self.transactions = Transactions(config)
        self.deferral = Deferral((1_000,), half=self.transactions.half)
        ends = TransactionEnds(
            self.transactions,
            self.store,
            InternalPuts(self.store),
            self.deferral.defer,
            self.offsets,
            ClientSessions(),
            self.clock,
            self.clock,
        )
        self.endings, self.progress = ends.endings, ends.progress
        end = self._ends(self.store.max_offset)
        loading = Loading(
            self.store, self.transactions, self.progress.begin(self._ends(self.store.min_offset), end), end
        )
        while loading.step():
            pass
        self.progress.mark(end)
        self.transactions.loaded.set()
        self.log_step(f"open {self.transactions!r} saved {self.offsets.table()}")

    @staticmethod
    def _ends(of: Callable[[str, int], int | None]) -> Offsets:
        return Offsets(of(HALF, QUEUE_ID) or 0, of(OP, QUEUE_ID) or 0)

    # actions

    def _send(self) -> None:
        batch = []
        for _ in range(self.rng.randint(1, 4)):
            number = len(self.sent)
            body = b"%d:" % number + self.rng.randbytes(self.rng.choice((0, 30, 300)))
            properties = {"TRAN_MSG": "true", "PGROUP": "G", "UNIQ_KEY": f"U{number}"}
            if self.rng.random() < 0.2:
                properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "60"
            encoded = encode_properties(properties).encode()
            append = message(body, self.rng.choice(TOPICS), self.rng.randint(0, 1), properties=encoded, sys_flag=4)
            append.born_timestamp = self.clock.now_ms
            assert self.deferral.defer(append, properties, self.clock.now_ms) is None
            sent = self.sent[number] = Sent(self.rng.random() < 0.6, append, [])
            self.of_this_session.append(sent)
            batch.append(append)
        for append in batch:
            self.store.put(append)
        self.store.commit()
        self.log_step(f"sent {[(bytes(append.body).split(b':')[0], append.queue_offset) for append in batch]}")

    def _end_some(self) -> None:
        """Let producers end some of the transactions whose positions they have."""
        known = [sent for sent in self.sent.values() if sent.positions]
        for sent in self.rng.sample(known, min(len(known), self.rng.randint(1, 3))):
            self._end_one(sent, self.rng.choice(sent.positions))
        self._commit()

    def _end_one(self, sent: Sent, position: int) -> None:
        half = self.endings.half_at(position, sent.append.queue_offset)
        if half is None or self.sent[_number(half.record.body)] is not sent:
            return  # lost in a cut; another message has its position, which the protocol cannot distinguish
        if self.endings.is_under_way(half) or self.endings.is_decided(half):
            return
        ending = self.endings.begin(half, is_commit=sent.is_commit)
        assert isinstance(ending, Ending)
        self.endings.put(ending)
        self.ending.append(ending)
        self.log_step(f"ended {half.unique_key} as {half.record.queue_offset} commit={sent.is_commit}")

    def _commit(self) -> None:
        batch, self.ending = self.ending, []
        if batch and self.endings.commit(partial(self._finish, batch)):
            self._finish(batch)

    def _finish(self, batch: list[Ending]) -> None:
        for ending in batch:
            assert ending.status in STORED, ending
            self.endings.finish(ending)
            self.sent[_number(ending.half.record.body)].is_ended = True

    def _check_round(self) -> None:
        """Run a check round; its checks get a response at once, later, or never."""
        self.clock.now_ms += self.rng.choice((3_000, INTERVAL_MS, 40_000))
        self.settle()
        for sent, position in self._checks():
            sent.positions.append(position)
            if self.rng.random() < 0.4:
                self._end_one(sent, position)
        self._commit()

    def _checks(self) -> list[tuple[Sent, int]]:
        producer: Any = FakeProducer()
        one = CheckRound(self.store, self.transactions, lambda *_: [producer], CheckTotals(), self.clock.now_ms)
        while one.step(self.clock.now_ms):
            pass
        checked = []
        for check in producer.checks:
            record = parse(memoryview(check.body))
            assert isinstance(record, Record)
            checked.append((self.sent[_number(record.body)], record.physical_offset))
        self.log_step(f"checked {len(checked)}, open from {self.transactions.halves.begin}")
        return checked

    def settle(self) -> None:
        """Do what the daemon does every 100 ms."""
        self.store.step(self.clock.now_ms)
        self.transactions.settle()
        self.progress.mark(self._ends(self.store.max_offset))
        self.progress.step(self.transactions.halves.begin, self.store.max_physical_offset, self.store.flushed_offset)
        self.note_owed(self.store.flushed_offset)

    def note_owed(self, flushed: int) -> None:
        """Mark acknowledged messages as known to their producers; these, and those on disk, must not be lost."""
        for sent in self.of_this_session:
            append = sent.append
            if append.status is PutStatus.PUT_OK and not sent.positions:
                sent.positions.append(append.physical_offset)
            is_acknowledged = self.is_sync and append.status is PutStatus.PUT_OK
            if is_acknowledged or (append.size and append.physical_offset + append.size <= flushed):
                sent.is_owed = True

    def encode(self) -> bytes:
        return self.offsets.encode()

    # the end

    def bring_to_an_end(self) -> None:
        """Check every open transaction, and respond to every check."""
        for _ in range(100):
            self.clock.now_ms += 100_000
            self.flush_all()
            checks = self._checks()
            for sent, position in checks:
                self._end_one(sent, position)
            self._commit()
            if not checks:
                break
        self.flush_all()
        end = self.store.max_offset(HALF, QUEUE_ID) or 0
        assert self.transactions.halves.begin == end, f"still open: {self.transactions!r}"
        assert self.transactions.statistics().open == {}

    def check(self) -> None:
        delivered = Counter(_number(record.body) for record in log_of(self.store) if record.topic in TOPICS)
        strange = [number for number in delivered if number not in self.sent or not self.sent[number].is_commit]
        assert not strange, f"delivered, but should not be: {strange}"
        owed = {number for number, sent in self.sent.items() if sent.is_owed and sent.is_commit}
        assert not owed - delivered.keys(), f"lost: {sorted(owed - delivered.keys())}"
        repeated = {number for number, times in delivered.items() if times > 1}
        assert self.may_repeat or not repeated, f"delivered more than once: {sorted(repeated)}"


def _number(body: Buffer) -> int:
    return int(bytes(body).split(b":")[0])


TRIAL: Final = Trial("transacted_cut", TransactedRun, 1_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
