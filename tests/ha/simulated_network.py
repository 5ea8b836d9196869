"""Links between simulated machines: each direction keeps its order, takes its time, and can be cut on its own.

What is sent into a cut direction waits until it is repaired, as TCP does. A killed process resets its links; a machine
without power sends nothing, so its peers see only silence.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.ha.core.messages import Message
from tests.ha.simulated_time import Simulation

RETRY_S: Final = 0.2


class Network:
    """`cut`: pairs (from, to) of machines in whose direction nothing arrives."""

    def __init__(self, simulation: Simulation) -> None:
        self.cut: set[tuple[str, str]] = set()
        self.simulation: Final = simulation

    def delay(self) -> float:
        """Return the time that a message takes: short, rarely long."""
        rng = self.simulation.rng
        return rng.expovariate(10) if rng.random() < 0.02 else 0.0002 + rng.expovariate(1000)

    def passes(self, sender: str, receiver: str) -> bool:
        """Return whether something arrives in this direction."""
        return (sender, receiver) not in self.cut

    def round_trip(self, one: str, other: str) -> bool:
        """Return whether something arrives in both directions."""
        return self.passes(one, other) and self.passes(other, one)


class Direction:
    """One direction of a link. `deliver` takes each message; None means that the link ended."""

    def __init__(self, network: Network, sender: str, receiver: str, deliver: Callable[[Message | None], None]) -> None:
        self._network = network
        self._ends = (sender, receiver)
        self._deliver = deliver
        self._waiting: deque[tuple[float, Message | None]] = deque()
        self._last = 0.0

    def send(self, message: Message | None) -> None:
        """Send a message, or the end of the link."""
        simulation = self._network.simulation
        at = simulation.now + self._network.delay()
        if at > self._last:
            self._last = at
        self._waiting.append((self._last, message))
        simulation.after(self._last - simulation.now, self._pump)

    def _pump(self) -> None:
        simulation, waiting = self._network.simulation, self._waiting
        if self._ends in self._network.cut:
            if waiting:
                simulation.after(RETRY_S, self._pump)
            return
        while waiting and waiting[0][0] <= simulation.now:
            self._deliver(waiting.popleft()[1])
