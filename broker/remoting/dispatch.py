"""Dispatch: which processor serves a request code, within which pool.

A processor is a plain callable `(source, command) -> response | None | awaitable`:
    response     is written with the other responses of this read batch
    None         the processor writes the response later (a send after its write, a parked pull), or never (oneway)
    awaitable    the processor has to wait; the result is the response

Frequent requests are served many at a time: a code may have a second processor for runs of fast-path requests
(`RunProcessor`), which is called first.

A pool is a budget, not a set of threads (`admission.py`). Requests that arrive while their pool is suspended are
deferred for the time that they may wait, and reads from their source are paused. `reopen` serves them, or a timer
refuses them.

A guard may raise `MustWait` for a request. Its source then defers the request and all later ones, and repeats them
after that time.

Errors become responses only here: `RequestError` gives its own code and remark, any other exception SYSTEM_ERROR and a
traceback in the log, a code without a processor REQUEST_CODE_NOT_SUPPORTED. A oneway request never gets a response.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.remoting.admission import Pool, memory_of
from skylarkmq.broker.remoting.request_latency import UNKNOWN_CODE, Latencies
from skylarkmq.broker.remoting.request_source import PausableSource, RequestSource
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError

Processor = Callable[[RequestSource, RemotingCommand], RemotingCommand | Awaitable[RemotingCommand | None] | None]

RunProcessor = Callable[[RequestSource, Sequence[RemotingCommand], int], int]
"""`(source, commands, at)`: serves the consecutive fast-path requests from index `at` on and returns their number;
0 leaves the first one, for any reason, to the code's processor."""

log = logging.getLogger(__name__)


class MustWait(Exception):
    """A request may be served in `wait_s` seconds. Until then its source is not read from."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"wait {wait_s:.3f} s")
        self.wait_s = wait_s


class Run(msgspec.Struct, frozen=True, gc=False):
    """Which commands of a read the guard has checked together.

    Those before the index `admitted_end` may be served; `refusal` is the response to the one at that index. None: that
    one is not checked yet. A source keeps the last run of the read that it handles, so that each command is checked
    once.
    """

    admitted_end: int
    refusal: RemotingCommand | None = None


UNCHECKED: Final = Run(0)
"""The run before the first one of a read."""


class Guard(Protocol):
    """Decides whether a request may be served, before its processor runs."""

    @property
    def checks_data(self) -> bool:
        """Return whether runs of fast-path requests are checked; otherwise `admit_run` is not called."""

    def admit(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand | None:
        """Return the response to a refused request, or None if the request may be served. Raises MustWait."""

    def admit_run(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int) -> Run:
        """Return the consecutive requests from `at` on that may be served in a run, and the response to the next one if
        it is refused. `Run(at)`: the first one needs `admit`."""

    def responded(self, command: RemotingCommand, response: RemotingCommand) -> None:
        """Record the response to a request that was not served in a run."""


class Dispatcher:
    """The processor table.

    Set after construction: processors with their callbacks (`register`, `register_run`, `at_run_end`, `at_batch_end`,
    `after_responses`), because they are made with this dispatcher's `latencies`; and the guard, because a change of
    settings replaces it.
    """

    def __init__(self) -> None:
        self._table: dict[int, tuple[Processor, Pool]] = {}
        self._runs: dict[int, tuple[RunProcessor, Pool]] = {}
        self._run_ends: list[Callable[[], None]] = []
        self._batch_ends: list[Callable[[], None]] = []
        self._after_responses: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[Pool, asyncio.TimerHandle] = {}
        self.max_wait_s = math.inf  # the smallest limit of all pools
        self.latencies = Latencies()
        self._guard: Guard | None = None
        self._run_guard: Guard | None = None

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self._table)} codes, {len(self._tasks)} waiting>"

    @property
    def guard(self) -> Guard | None:
        """Return the part that checks each request before it is served; None: every request is served."""
        return self._guard

    @guard.setter
    def guard(self, guard: Guard | None) -> None:
        self._guard = guard
        self._run_guard = guard if guard is not None and guard.checks_data else None

    @property
    def waiting(self) -> int:
        """Return the number of requests whose processors are being awaited."""
        return len(self._tasks)

    @property
    def codes(self) -> Iterable[int]:
        """Return the request codes that have a processor."""
        return self._table.keys()

    def register(self, codes: Iterable[int], processor: Processor, pool: Pool) -> None:
        """Let `processor` serve `codes` within `pool`."""
        for code in codes:
            self._table[int(code)] = (processor, pool)
        if pool.max_wait_ms is not None:
            self.max_wait_s = min(self.max_wait_s, pool.max_wait_ms / 1000)

    def register_run(self, codes: Iterable[int], processor: RunProcessor, pool: Pool) -> None:
        """Offer requests of `codes` to `processor` first; requests that it leaves are served one by one."""
        for code in codes:
            self._runs[int(code)] = (processor, pool)

    def at_run_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` before each request that is not served in a run."""
        self._run_ends.append(callback)

    def at_batch_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end of a read batch, before its responses are written."""
        self._batch_ends.append(callback)

    def after_responses(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the responses are written, before the next read."""
        self._after_responses.append(callback)

    def pools(self) -> list[Pool]:
        """Return every pool in use, once."""
        return list({id(pool): pool for _, pool in self._table.values()}.values())

    def end_batch(self) -> None:
        """Let processors finish the work that they collected during a read batch."""
        for callback in self._batch_ends:
            callback()

    def run_after_responses(self) -> None:
        """Let processors do the work that no response waits for."""
        for callback in self._after_responses:
            callback()

    def dispatch_from(
        self, source: PausableSource, commands: list[RemotingCommand], at: int, run: Run = UNCHECKED
    ) -> tuple[int, Run]:
        """Serve the request at index `at`, and those after it that its processor takes along; return the next index,
        and the run for the next call. `run`: the one that the last call for the same commands returned.

        The index is `at` if the request has to wait; its source is paused (`PausableSource.hold`). Raises the errors of
        `dispatch`.
        """
        command = commands[at]
        entry = self._runs.get(command.code)
        if entry is not None:
            serve_run, pool = entry
            if pool.pending < pool.admit_limit:
                if self._run_guard is None:
                    served = serve_run(source, commands, at)
                else:
                    end = run.admitted_end
                    if at > end or (at == end and run.refusal is None):
                        run = self._run_guard.admit_run(source, commands, at)
                        end = run.admitted_end
                    offered = commands if end == len(commands) else commands[:end]
                    served = serve_run(source, offered, at) if at < end else 0
                if served:
                    return at + served, run
        is_admitted = at < run.admitted_end
        refusal = run.refusal if at == run.admitted_end else None
        return at + self.dispatch(source, command, is_admitted=is_admitted, refusal=refusal), run

    def dispatch(
        self,
        source: PausableSource,
        command: RemotingCommand,
        *,
        is_admitted: bool = False,
        refusal: RemotingCommand | None = None,
    ) -> bool:
        """Serve one request and return True, or return False if it has to wait. Raises only ProtocolError, which closes
        the source.

        If the guard has already decided, `is_admitted` is set, or `refusal` is the response.
        """
        for end_run in self._run_ends:
            end_run()
        entry = self._table.get(command.code)
        if entry is None:
            remark = f" request type {command.code} not supported"
            self._respond(source, command, RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return True
        processor, pool = entry
        if pool.pending >= pool.admit_limit and not self._admits(pool, source, command):
            return True
        try:
            if self._guard is not None and not is_admitted:
                refusal = refusal or self._guard.admit(source, command)
                if refusal is not None:
                    self._respond(source, command, refusal)
                    return True
            result = processor(source, command)
        except ProtocolError:
            raise
        except MustWait as held:
            source.hold(held.wait_s)
            return False
        except Exception as error:  # noqa: BLE001 (becomes a response, is logged with its traceback)
            self._respond(source, command, error_response(command, source.peer, error))
            return True
        self._take_result(source, command, pool, result)
        return True

    def _take_result(
        self,
        source: PausableSource,
        command: RemotingCommand,
        pool: Pool,
        result: RemotingCommand | Awaitable[RemotingCommand | None] | None,
    ) -> None:
        """Write the response that a processor returned, or wait for it."""
        if isinstance(result, RemotingCommand):
            self._respond(source, command, result)
        elif result is not None:
            self._await(source, command, pool, result)

    # ------------------------------------------------------------------------------------------------- waiting requests

    def note_read_delay(self, waited_s: float) -> None:
        """Record that the requests dispatched from now on have waited `waited_s` since they became readable; 0 ends
        this."""
        for pool in self.pools():
            pool.note_read_delay(int(waited_s * 1000))

    def reopen(self, pool: Pool) -> None:
        """Resume a suspended pool, and serve its deferred requests."""
        for source, command, since_s, _ in pool.resume():
            if source.closed:
                continue
            source.arrived_s = since_s
            try:
                if not self.dispatch(source, command):
                    source.defer([command])
            except ProtocolError as error:
                log.warning("closing connection peer=%s reason=%s", source.peer, error)
                source.close()
        self.end_batch()
        self.run_after_responses()

    def _admits(self, pool: Pool, source: PausableSource, command: RemotingCommand) -> bool:
        """Return whether a request above the admission limit may be served after all; otherwise refuse or defer it."""
        remark = pool.refusal()
        if remark is not None:
            self._respond(source, command, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark))
            return False
        if not pool.is_suspended:
            return True
        pool.defer(source, command, source.active_s)
        source.pause_reads()
        if pool not in self._timers:
            self._set_timer(pool)
        return False

    def _set_timer(self, pool: Pool) -> None:
        if pool.due_s is not None:
            self._timers[pool] = asyncio.get_running_loop().call_at(pool.due_s, self._refuse_overdue, pool)

    def _refuse_overdue(self, pool: Pool) -> None:
        """Refuse the requests that have waited too long for a pool."""
        del self._timers[pool]
        overdue, remark = pool.take_overdue(asyncio.get_running_loop().time())
        for source, command, since_s, _ in overdue:
            source.arrived_s = since_s
            self._respond(source, command, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark))
        self._set_timer(pool)

    # -------------------------------------------------------------------------------------------------------- responses

    def _respond(self, source: PausableSource, command: RemotingCommand, response: RemotingCommand) -> None:
        source.respond(command, response)
        self._record_latency(command, response, source.arrived_s)
        if self._guard is not None:
            self._guard.responded(command, response)

    def _record_latency(self, command: RemotingCommand, response: RemotingCommand, arrived_s: float) -> None:
        code = command.code if command.code in self._table else UNKNOWN_CODE
        self.latencies.note(code, response.code, arrived_s, was_oneway=command.is_oneway)

    def _await(
        self,
        source: PausableSource,
        command: RemotingCommand,
        pool: Pool,
        result: Awaitable[RemotingCommand | None],
    ) -> None:
        request, arrived_s = command.detached(), source.arrived_s

        async def finish() -> None:
            try:
                response = await result
            except Exception as error:  # noqa: BLE001 (as above)
                response = error_response(request, source.peer, error)
            finally:
                pool.release(size)
            if response is not None:
                source.respond(request, response)
                self._record_latency(request, response, arrived_s)
                if self._guard is not None:
                    self._guard.responded(request, response)

        size = memory_of(request)
        pool.take(size)
        task = asyncio.ensure_future(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def error_response(command: RemotingCommand, peer: str, error: Exception) -> RemotingCommand:
    """Return the response to a failed request; log the failure, with a traceback unless a disk or a network failed."""
    if isinstance(error, RequestError):
        return RemotingCommand.response(error.code, error.remark)
    if isinstance(error, OSError):
        log.error("request failed code=%d peer=%s error=%s", command.code, peer, error)
    else:
        log.error("request failed code=%d peer=%s", command.code, peer, exc_info=error)
    return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
