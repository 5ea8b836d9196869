"""The gate: one decision for each request, before its processor runs.

Order: access control (the account and its permissions), networks of administrators, quotas. The first refusal is the
response. The observer, which is the audit log, is informed of each refusal, of each admitted request, and of responses.

Sends and pulls arrive in runs. `admit_run` checks each of them, at most MAX_RUN, and ends the run at the first that is
refused or has to wait. Quotas count a run as a whole. Some checks concern only requests that change the cluster
(`checks_data` False). If all do, the dispatcher does not call the gate for runs.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol, runtime_checkable

from skylarkmq.broker.access.caller import ANONYMOUS, Caller
from skylarkmq.broker.access.requests.table import Requirement, requirement_of
from skylarkmq.broker.remoting.dispatch import Run
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

MAX_RUN: Final = 64
"""Most requests of a run. If a client does not read its responses, the rest of a run is deferred, and checked again."""


class Control(Protocol):
    """One generation of RocketMQ's access control, or none."""

    @property
    def checks_data(self) -> bool:
        """Return whether requests that change nothing are checked, such as sends and pulls."""

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Return the caller of a permitted request. Raises RequestError, with RocketMQ's code and remark, otherwise."""


@runtime_checkable
class RunControl(Control, Protocol):
    """Access control that can check several requests in one step."""

    def admit_alike(
        self, source: RequestSource, commands: Sequence[RemotingCommand], at: int, end: int
    ) -> tuple[int, Caller]:
        """Return how many requests from `at` on, before `end`, are permitted because they are like an earlier one, and
        their caller. The next one is checked by itself."""


class Restriction(Protocol):
    """A further condition of a request, such as a network or a quota."""

    @property
    def checks_data(self) -> bool:
        """Return whether requests that change nothing are checked, such as sends and pulls."""

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement, caller: Caller) -> None:
        """Raises RequestError if the request is refused."""


class Observer(Protocol):
    """Records requests and their results."""

    @property
    def checks_data(self) -> bool:
        """Return whether sends and pulls are recorded, too."""

    def refused(
        self,
        source: RequestSource,
        command: RemotingCommand,
        requirement: Requirement,
        caller: Caller,
        error: RequestError,
    ) -> None:
        """Record a refusal."""

    def served(self, source: RequestSource, command: RemotingCommand, requirement: Requirement, caller: Caller) -> None:
        """Record a request that was admitted."""

    def responded(self, command: RemotingCommand, response: RemotingCommand) -> None:
        """Record the response to a request, unless the request was served in a run."""


class Pacing(Protocol):
    """Quotas per second: a request is admitted, refused, or has to wait."""

    def admit(self, source: RequestSource, command: RemotingCommand, caller: Caller) -> None:
        """Count a request. Raises MustWait or RequestError if a quota does not permit it now."""

    def admit_run(self, source: RequestSource, commands: Sequence[RemotingCommand], callers: Sequence[Caller]) -> int:
        """Count these requests, from the first one on, as far as the quotas permit them now; return their number."""


class Gate:
    """Decides about requests. `control` None: every caller is anonymous, and permitted."""

    def __init__(
        self,
        control: Control | None,
        restrictions: Sequence[Restriction] = (),
        observer: Observer | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._control = control
        self._restrictions = tuple(restrictions)
        self._data_restrictions = tuple(one for one in restrictions if one.checks_data)
        self._run_control = control if isinstance(control, RunControl) and not self._data_restrictions else None
        self._observer = observer
        self._pacing = pacing
        parts = (control, *restrictions, observer)
        self.checks_data = pacing is not None or any(part.checks_data for part in parts if part is not None)
        self._skips_reads = not self.checks_data and observer is None

    def __repr__(self) -> str:
        return f"<Gate {self._control!r} {self._restrictions!r} {self._pacing!r} {self._observer!r}>"

    def admit(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand | None:
        """Return the response to a refused request, or None if the request may be served. Raises MustWait."""
        requirement = requirement_of(command.code)
        if self._skips_reads and not requirement.changes:
            return None
        caller, error = self._check(source, command, requirement)
        if error is None and self._pacing is not None:
            try:
                self._pacing.admit(source, command, caller)
            except RequestError as excess:
                error = without_frames(excess)
        if error is not None:
            return self._refused(source, command, requirement, caller, error)
        if self._observer is not None:
            self._observer.served(source, command, requirement, caller)
        return None

    def admit_run(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int) -> Run:
        """Return the consecutive requests with the code of the one at `at` that may be served, and the response to the
        next one if access control or a restriction refuses it."""
        try:
            requirement = requirement_of(commands[at].code)
            callers, caller, error = self._check_run(source, commands, at, requirement)
            end = at + len(callers)
            if self._pacing is not None and callers:
                count = self._pacing.admit_run(source, commands[at:end], callers)
                if count < len(callers):
                    end, error = at + count, None  # the next one is checked again, by itself
        except Exception:  # noqa: BLE001 (`admit` raises the same for that request, and its caller responds)
            return Run(at)
        if self._observer is not None:
            for number in range(at, end):
                self._observer.served(source, commands[number], requirement, callers[number - at])
        refusal = None if error is None else self._refused(source, commands[end], requirement, caller, error)
        return Run(end, refusal)

    def responded(self, command: RemotingCommand, response: RemotingCommand) -> None:
        """Record the response to a request that was not served in a run."""
        if self._observer is not None:
            self._observer.responded(command, response)

    def _check(
        self, source: RequestSource, command: RemotingCommand, requirement: Requirement
    ) -> tuple[Caller, RequestError | None]:
        """Return the caller of a request, as far as it is known, and the error if the request is not permitted."""
        caller = ANONYMOUS
        try:
            if self._control is not None:
                caller = self._control.check(source, command, requirement)
            for restriction in self._restrictions:
                restriction.check(source, command, requirement, caller)
        except RequestError as error:
            return caller, without_frames(error)
        return caller, None

    def _check_run(
        self, source: RequestSource, commands: Sequence[RemotingCommand], at: int, requirement: Requirement
    ) -> tuple[list[Caller], Caller, RequestError | None]:
        """Return the callers of the permitted requests of a run, and of the next one with its error, if it is not
        permitted. A run changes nothing in the cluster."""
        code, control, restrictions = requirement.code, self._control, self._data_restrictions
        callers: list[Caller] = []
        caller = ANONYMOUS
        end = min(at + MAX_RUN, len(commands))
        try:
            if self._run_control is not None:
                count, caller = self._run_control.admit_alike(source, commands, at, end)
                callers = [caller] * count
            for command in islice(commands, at + len(callers), end):
                if command.code != code or command.is_response:
                    break
                caller = ANONYMOUS
                if control is not None:
                    caller = control.check(source, command, requirement)
                for restriction in restrictions:
                    restriction.check(source, command, requirement, caller)
                callers.append(caller)
        except RequestError as error:
            return callers, caller, without_frames(error)
        return callers, caller, None

    def _refused(
        self,
        source: RequestSource,
        command: RemotingCommand,
        requirement: Requirement,
        caller: Caller,
        error: RequestError,
    ) -> RemotingCommand:
        """Record a refusal; return the response."""
        if self._observer is not None:
            self._observer.refused(source, command, requirement, caller, error)
        return RemotingCommand.response(error.code, error.remark)


def without_frames(error: RequestError) -> RequestError:
    """Return the same error without its traceback.

    The frames of a traceback refer to the request and, through the caller's variables, to the error itself: such a
    cycle would keep every refused request in memory until the garbage collector runs.
    """
    return RequestError(error.code, error.remark)
