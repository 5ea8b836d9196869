"""Plain sends: runs of them, with one look at each.

A send is plain if its header was decoded on the way in (protocol.send_command), its topic lets everything pass
(`SendChecks.queues`), it names a queue, is no batch, and its properties are of the usual kind with a unique key among
them. Nothing can be the matter with it but what the store finds; so a run of such sends becomes one list, is answered
by one write, and counted once. The first that is not plain ends the run, and goes to the `SendProcessor` like a request
of any other kind. What the store refuses, and what is oneway, it answers too.

Many connections with little in flight bring a send or two a read. So the runs of a turn are put together, when it ends,
or before a request of another kind is served.

Source: docs/formats.md, "Send".
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from skylarkmq.broker.delivery.put_latency import PutLatency
from skylarkmq.broker.processors.send.messages import PlainColumns, PlainSend, SendMessages, Waiting
from skylarkmq.broker.processors.send.response import SendAnswers
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import RunProcessor
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.send_columns import SendColumns

_FLUSH_TIMES: Final = 2
"""A flush takes longer than a client."""
_ALONE: Final = 4
"""So many sends one by one, and nobody else's in between, are a habit."""

Turn = list[tuple[Connection, int, list[PlainSend] | PlainColumns]]
"""Who asked, how many sends these are."""

log = logging.getLogger(__name__)


class PlainSends:
    """Takes sends before the SendProcessor does, and hands it those that need another answer (`answer_others`).

    `queues`: see SendChecks.
    """

    def __init__(
        self,
        queues: dict[str, int],
        messages: SendMessages,
        store: MessageStore,
        answers: SendAnswers,
        pool: Pool,
        times: PutLatency,
        answer_others: Callable[[list[Waiting], float], None],
    ) -> None:
        self._queues = queues
        self._messages = messages
        self._store = store
        self._answers = answers
        self._pool = pool
        self._times = times
        self._answer_others = answer_others
        self._turn: Turn = []
        self._gathered: list[Append] = []  # of the turn, and not put yet
        self._answered: list[tuple[Connection, int, float, int]] = []  # to be counted: who, code, since when, how many
        self._last: Connection | None = None
        self._in_row = 0  # turns of a single send from the same connection

    def __repr__(self) -> str:
        return f"<PlainSends runs={len(self._turn)}>"

    def handlers(self) -> dict[RequestCode, RunProcessor]:
        """What runs are made of."""
        return {RequestCode.SEND_MESSAGE: self.serve, RequestCode.SEND_MESSAGE_V2: self.serve}

    def serve(self, connection: Connection, commands: Sequence[RemotingCommand], at: int) -> int:
        """Take the plain sends that stand at `at` and behind it; returns how many commands they are."""
        command = commands[at]
        if isinstance(command, SendColumns):
            return self._serve_columns(connection, command)
        sends = self._messages.plain(commands, at, self._queues, connection.peer_host)
        if sends:
            self._turn.append((connection, len(sends), sends))
            self._gathered += [append for _, append, _ in sends]
        return len(sends)

    def _serve_columns(self, connection: Connection, command: SendColumns) -> int:
        self.end_run()
        appends = self._messages.columns(command, self._queues, connection.peer_host)
        if appends is None or not self._store.put_columns(appends):
            return 0
        self._turn.append((connection, len(appends), PlainColumns(command, appends)))
        return 1

    def end_run(self) -> None:
        """Put what was gathered: something else is next."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        try:
            self._store.put_run(gathered)
        except Exception:
            failed = [
                append for append in gathered if append.physical_offset < 0 and append.status is PutStatus.PENDING
            ]
            for append in failed:
                append.status = PutStatus.UNKNOWN_ERROR
            log.exception("plain sends failed messages=%d", len(failed))

    def finish_turn(self) -> None:
        """Write what this read brought, and answer it when the store has decided."""
        self.end_run()
        turn = self._turn
        if not turn:
            return
        self._turn = []
        self._store.write(self._store.is_flush_interpreted and self._is_alone(turn))
        if self._store.is_flush_behind:
            for connection, *_ in turn:
                connection.pause_reads()
        if not self._store.is_settled():
            self._pool.pending += sum(count for _, count, _ in turn)
            if not self._store.is_flush_interpreted and _is_single(turn):
                self._look_out(turn[0][0])
            _let_go_of_bodies(turn)
            self._store.when_settled(partial(self._answer_flushed, turn, turn[0][0].arrived_s))
        else:
            self._answer_all(turn, turn[0][0].arrived_s)

    def _look_out(self, connection: Connection) -> None:
        """The flush that a sender with one message in flight waits for comes soon, and then he himself."""
        if limit_us := connection.busy_poll(_FLUSH_TIMES):
            self._store.stay_awake(limit_us)

    def _is_alone(self, turn: Turn) -> bool:
        """Whether one connection has sent one by one for a while, and no other has."""
        is_next = _is_single(turn) and turn[0][0] is self._last
        self._in_row = self._in_row + 1 if is_next else 0
        self._last = turn[0][0]
        return self._in_row >= _ALONE

    def _answer_flushed(self, turn: Turn, arrived_s: float) -> None:
        self._pool.pending -= sum(count for _, count, _ in turn)
        self._answer_all(turn, arrived_s)

    def run_after_responses(self) -> None:
        """Count what was answered; who had one send in flight is waited for."""
        answered = self._answered
        if not answered:
            return
        self._answered = []
        connection, _, _, count = answered[0]
        if len(answered) == count == 1 and (self._in_row >= _ALONE or not self._store.is_flush_interpreted):
            connection.busy_poll()
        for _, code, arrived_s, count in answered:
            self._times.note(code, ResponseCode.SUCCESS, arrived_s, count)

    def _answer_all(self, turn: Turn, arrived_s: float) -> None:
        for connection, count, sends in turn:
            if isinstance(sends, PlainColumns):
                code = sends.command.code
                frames, others = self._answers.stored_columns(sends)
            else:
                code = sends[0][0].code
                frames, others = self._answers.stored_all(sends)
            if frames:
                connection.write(frames)
                self._answered.append((connection, code, arrived_s, count - len(others)))
            if others:
                self._answer_others(
                    [(connection, c, append, key.decode(), append.queue_id, None) for c, append, key in others],
                    arrived_s,
                )


def _is_single(turn: Turn) -> bool:
    return len(turn) == 1 and turn[0][1] == 1


def _let_go_of_bodies(turn: Turn) -> None:
    """As in send.py: what is written need not stay in memory until it is flushed."""
    for _, _, sends in turn:
        if isinstance(sends, PlainColumns):
            sends.command.let_go()
            sends.appends.let_go()
            continue
        for command, append, _ in sends:
            command.let_go()
            append.body = b""
