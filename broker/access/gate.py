"""The gate: one decision for each request, before its processor runs.

Order: access control (the account and its permissions), networks of administrators, quotas. The first refusal is the
response. The observer, which is the audit log, is informed of each refusal and of each admitted request.

Sends and pulls arrive in runs. `admit_run` checks each of them, at most MAX_RUN, and ends the run at the first that is
refused. Some checks concern only requests that change the cluster (`checks_data` False). If all do, the dispatcher does
not ask about runs.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from skylarkmq.broker.access.caller import ANONYMOUS, Caller
from skylarkmq.broker.access.requirements import Requirement, requirement_of
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

MAX_RUN: Final = 64
"""Most requests of a run. If a client does not read its responses, the rest of a run is deferred, and checked again."""


class Control(Protocol):
    """One generation of RocketMQ's access control, or none."""

    @property
    def checks_data(self) -> bool:
        """Return whether requests that change nothing are checked, such as sends and pulls."""

    def check(self, connection: Connection, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Return the caller of a permitted request. Raises RequestError, with RocketMQ's code and remark, otherwise."""


class Restriction(Protocol):
    """A further condition of a request, such as a network or a quota."""

    @property
    def checks_data(self) -> bool:
        """Return whether requests that change nothing are checked, such as sends and pulls."""

    def check(self, connection: Connection, command: RemotingCommand, requirement: Requirement, caller: Caller) -> None:
        """Raises RequestError if the request is refused."""


class Observer(Protocol):
    """Records requests and their results."""

    @property
    def checks_data(self) -> bool:
        """Return whether sends and pulls are recorded, too."""

    def refused(
        self,
        connection: Connection,
        command: RemotingCommand,
        requirement: Requirement,
        caller: Caller,
        error: RequestError,
    ) -> None:
        """Record a refusal."""

    def served(
        self, connection: Connection, command: RemotingCommand, requirement: Requirement, caller: Caller
    ) -> None:
        """Record a request that was admitted."""


class Gate:
    """Decides about requests. `control` None: every caller is anonymous, and permitted."""

    def __init__(
        self,
        control: Control | None,
        restrictions: Sequence[Restriction] = (),
        observer: Observer | None = None,
    ) -> None:
        self._control = control
        self._restrictions = tuple(restrictions)
        self._observer = observer
        parts = (control, *restrictions, observer)
        self.checks_data = any(part.checks_data for part in parts if part is not None)

    def __repr__(self) -> str:
        return f"<Gate {self._control!r} {self._restrictions!r}>"

    def admit(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Return the response to a refused request, or None if the request may be served."""
        return self._refusal(connection, command, requirement_of(command.code))

    def admit_run(
        self, connection: Connection, commands: Sequence[RemotingCommand], at: int
    ) -> tuple[int, RemotingCommand | None]:
        """Return the index after the last consecutive request with the code of the one at `at` that may be served, and
        the response to the next one if it is refused."""
        code = commands[at].code
        end, last = at, min(at + MAX_RUN, len(commands))
        try:
            requirement = requirement_of(code)
            while end < last and commands[end].code == code and not commands[end].is_response:
                refusal = self._refusal(connection, commands[end], requirement)
                if refusal is not None:
                    return end, refusal
                end += 1
        except Exception:  # noqa: BLE001 (`admit` raises the same for that request, and its caller responds)
            return end, None
        return end, None

    def _refusal(
        self, connection: Connection, command: RemotingCommand, requirement: Requirement
    ) -> RemotingCommand | None:
        caller = ANONYMOUS
        try:
            if self._control is not None:
                caller = self._control.check(connection, command, requirement)
            for restriction in self._restrictions:
                restriction.check(connection, command, requirement, caller)
        except RequestError as error:
            if self._observer is not None:
                self._observer.refused(connection, command, requirement, caller, error)
            return RemotingCommand.response(error.code, error.remark)
        if self._observer is not None:
            self._observer.served(connection, command, requirement, caller)
        return None
