"""Fast path for runs of sends.

A send takes the fast path if its header was decoded with the frame (protocol.send_command), its topic needs no checks
(`SendChecks.queues`), it names a queue, is no batch, and has common properties with a unique key. Only the store can
refuse such a send; so a run of them becomes one list, gets its responses in one write, and is counted once. The first
send that does not qualify ends the run, and goes to the `SendProcessor`, like every other request. The SendProcessor
also responds to sends that the store refuses, and handles oneway sends.

Many connections with few messages in flight deliver one or two sends per read. So runs are gathered until the end of
the event-loop iteration, or until a request of another kind is served.

Source: docs/reference/wire.md, "Send".
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.processors.send.messages import FastPathSend, SendMessages, Waiting
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import RunProcessor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand

_FLUSH_TIMES: Final = 2
"""Busy polling waits this many times longer for a flush than for a client."""
_SINGLE_PRODUCER_SENDS: Final = 4
"""After this many iterations in a row with a single send from the same source, it is the only producer."""

Runs = list[tuple[RequestSource, int, list[FastPathSend]]]
"""The source, its number of sends, and the sends."""

log = logging.getLogger(__name__)


class FastPathSends:
    """Serves sends before the SendProcessor does, and passes those that need another response to `respond_to_others`.

    `queues`: see SendChecks.
    """

    def __init__(
        self,
        queues: dict[str, int],
        messages: SendMessages,
        store: MessageStore,
        responses: SendResponses,
        pool: Pool,
        times: PutLatency,
        respond_to_others: Callable[[list[Waiting], float], None],
    ) -> None:
        self._queues = queues
        self._messages = messages
        self._store = store
        self._responses = responses
        self._pool = pool
        self._times = times
        self._respond_to_others = respond_to_others
        self._runs: Runs = []
        self._gathered: list[Append] = []  # gathered and not put yet
        self._counts: list[tuple[RequestSource, int, float, int]] = []  # source, code, arrival, count
        self._last: RequestSource | None = None
        self._single_sends = 0  # iterations in a row with a single send from that source

    def __repr__(self) -> str:
        return f"<FastPathSends runs={len(self._runs)}>"

    def handlers(self) -> dict[RequestCode, RunProcessor]:
        """Return the handler of runs for each request code."""
        return {RequestCode.SEND_MESSAGE: self.serve, RequestCode.SEND_MESSAGE_V2: self.serve}

    def serve(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int) -> int:
        """Take the fast-path sends in `commands` from `at` on, and return how many commands were taken."""
        sends = self._messages.fast_path_sends(commands, at, self._queues, source.peer_host)
        if sends:
            self._runs.append((source, len(sends), sends))
            self._gathered += [append for _, append, _ in sends]
        return len(sends)

    def end_run(self) -> None:
        """Put the gathered sends into the store, before a request of another kind is served."""
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
            log.exception("fast-path sends failed messages=%d", len(failed))

    def finish_iteration(self) -> None:
        """Write the sends of this read, and respond when the store has decided their status."""
        self.end_run()
        runs = self._runs
        if not runs:
            return
        self._runs = []
        self._store.write(self._store.flush.is_interpreted and self._is_single_producer(runs))
        if self._store.flush.is_behind:
            for source, *_ in runs:
                source.pause_reads()
        if not self._store.flush.is_settled():
            self._pool.pending += sum(count for _, count, _ in runs)
            if self._store.flush.is_polled and _is_single(runs):
                self._poll_for_flush(runs[0][0])
            _release_bodies(runs)
            self._store.flush.when_settled(partial(self._respond_after_flush, runs, runs[0][0].arrived_s))
        else:
            self._respond(runs, runs[0][0].arrived_s)

    def _poll_for_flush(self, source: RequestSource) -> None:
        """Poll for the flush without sleeping: a producer with one message in flight waits for it, and then sends the
        next."""
        if limit_us := source.busy_poll(_FLUSH_TIMES):
            self._store.flush.keep_spinning(limit_us)

    def _is_single_producer(self, runs: Runs) -> bool:
        """Return whether one source has sent messages one by one for a while, and no other has sent any."""
        is_next = _is_single(runs) and runs[0][0] is self._last
        self._single_sends = self._single_sends + 1 if is_next else 0
        self._last = runs[0][0]
        return self._single_sends >= _SINGLE_PRODUCER_SENDS

    def _respond_after_flush(self, runs: Runs, arrived_s: float) -> None:
        self._pool.pending -= sum(count for _, count, _ in runs)
        self._respond(runs, arrived_s)

    def run_after_responses(self) -> None:
        """Count the sends that got a response, and poll for the next send of a producer with one message in flight."""
        counts = self._counts
        if not counts:
            return
        self._counts = []
        source, _, _, count = counts[0]
        if len(counts) == count == 1 and (
            self._single_sends >= _SINGLE_PRODUCER_SENDS or not self._store.flush.is_interpreted
        ):
            source.busy_poll()
        for _, code, arrived_s, count in counts:
            self._times.note(code, ResponseCode.SUCCESS, arrived_s, count)

    def _respond(self, runs: Runs, arrived_s: float) -> None:
        for source, count, sends in runs:
            code = sends[0][0].code
            frames, others = self._responses.stored_all(sends)
            if frames:
                source.write(frames)
                self._counts.append((source, code, arrived_s, count - len(others)))
            if others:
                self._respond_to_others(
                    [(source, c, append, key.decode(), append.queue_id, None) for c, append, key in others],
                    arrived_s,
                )


def _is_single(runs: Runs) -> bool:
    return len(runs) == 1 and runs[0][1] == 1


def _release_bodies(runs: Runs) -> None:
    """Release the bodies, as `processor.py` does: a written body is not needed until the flush."""
    for _, _, sends in runs:
        for command, append, _ in sends:
            command.drop_payload()
            append.body = b""
