"""A store of decisions in a simulation: one record with a revision, signs of life that expire, and bad connections.

Requests and responses take time. A request of a node that is cut off may be lost, or take effect seconds after the node
gave up waiting for it. A response may be lost although the request took effect.
"""

from collections.abc import Callable
from typing import Final, Protocol

from skylarkmq.broker.ha.core.events import (
    Event,
    Life,
    LifeSeen,
    Read,
    ReadFailed,
    RecordRead,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
)
from skylarkmq.broker.ha.core.record import GroupRecord
from tests.ha.simulated_time import Simulation

TIMEOUT_S: Final = 1.0
LIFE_S: Final = 3.0


class Caller(Protocol):
    """A process that uses the store. Events for a process that has ended are dropped."""

    @property
    def name(self) -> str: ...

    def post(self, event: Event) -> None: ...


class SimulatedDecisions:
    """`check` is called with each new record."""

    def __init__(self, simulation: Simulation, check: Callable[[GroupRecord | None, GroupRecord], None]) -> None:
        self.record: GroupRecord | None = None
        self.revision = 0
        self.cut: set[str] = set()
        self.down = False
        self._simulation = simulation
        self._check = check
        self._lives: dict[str, tuple[Life, float]] = {}
        self._watchers: dict[str, Caller] = {}
        simulation.after(0.2, self._expire)

    def watch(self, caller: Caller) -> None:
        """Pass all signs of life, and their changes, to this process."""
        self._watchers[caller.name] = caller
        self.refresh(caller)

    def refresh(self, caller: Caller) -> None:
        """Pass all signs of life: after a connection was repaired."""
        for name in self._watchers:
            self._notify(caller, name)

    def ask(self, caller: Caller, request: Read | Swap) -> None:
        """Carry out a request. Exactly one event follows."""
        simulation = self._simulation
        answered: list[bool] = []
        unknown = SwapUnknown() if isinstance(request, Swap) else ReadFailed()
        delay = simulation.between(0.001, 0.02)
        if self._is_cut(caller.name) or simulation.rng.random() < 0.01:
            delay = simulation.between(0, 3)
            answered.append(False)
            simulation.after(TIMEOUT_S, caller.post, unknown)
            if simulation.rng.random() < 0.5:
                return
        simulation.after(delay, self._carry_out, caller, request, answered)

    def renew(self, caller: Caller, life: Life, renewed: Callable[[], None]) -> None:
        """Renew a sign of life, and call back."""
        if not self._is_cut(caller.name):
            self._simulation.after(self._simulation.between(0.001, 0.02), self._renew, caller, life, renewed)

    def _is_cut(self, name: str) -> bool:
        return self.down or name in self.cut

    def _carry_out(self, caller: Caller, request: Read | Swap, answered: list[bool]) -> None:
        response: Event
        if isinstance(request, Read):
            response = RecordRead(self.record, self.revision)
        elif request.revision != self.revision or request.absent in self._lives:
            response = SwapRefused()
        else:
            self._check(self.record, request.record)
            self.record = request.record
            self.revision += 1
            response = Swapped(self.revision)
        if not answered:
            if self._is_cut(caller.name):
                unknown = SwapUnknown() if isinstance(request, Swap) else ReadFailed()
                self._simulation.after(TIMEOUT_S, caller.post, unknown)
            else:
                self._simulation.after(self._simulation.between(0.001, 0.02), caller.post, response)

    def _renew(self, caller: Caller, life: Life, renewed: Callable[[], None]) -> None:
        before = self._lives.get(caller.name)
        self._lives[caller.name] = (life, self._simulation.now + LIFE_S)
        if before is None or before[0] != life:
            self._tell(caller.name)
        if not self._is_cut(caller.name):
            self._simulation.after(self._simulation.between(0.001, 0.02), renewed)

    def _expire(self) -> None:
        for name, (_, end) in list(self._lives.items()):
            if end < self._simulation.now and not self.down:
                del self._lives[name]
                self._tell(name)
        self._simulation.after(0.2, self._expire)

    def _tell(self, name: str) -> None:
        for watcher in self._watchers.values():
            self._notify(watcher, name)

    def _notify(self, watcher: Caller, name: str) -> None:
        if not self._is_cut(watcher.name):
            life = self._lives.get(name)
            self._simulation.after(0.01, watcher.post, LifeSeen(name, life[0] if life else None))
