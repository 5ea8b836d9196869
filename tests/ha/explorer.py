"""Breadth-first exploration of a model, one representative for all renumberings of the nodes.

A visited state is kept as its 64-bit hash, together with the hash of the state from which it was reached first: about
100 bytes for each. Only the states of two depths are kept whole. A trace is rebuilt by following these hashes from the
initial state, with the nodes' own names. Two states with one hash would hide one of them: at 10^7 states the
probability that this happens at all is 3 in a million.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.ha.invariants import broken, marks_stay
from tests.ha.state import State, representative
from tests.ha.transitions import Model, Step

REPORT_EVERY: Final = 5_000

Goal = Callable[[State], bool]
"""A condition whose first state ends an exploration."""
Trace = list[tuple[Step, State]]


@dataclass(slots=True)
class Exploration:
    """What an exploration has found so far."""

    states: int = 1
    transitions: int = 0
    depth: int = 0
    """Steps from the initial state to the states that were expanded last."""
    is_complete: bool = False
    """Whether every state within the scope was visited."""
    found: str = ""
    """The invariant that does not hold, or "goal"."""
    trace: Trace = field(default_factory=list)
    seconds: float = 0.0


def no_goal(state: State) -> bool:
    return False


def ignored(so_far: Exploration) -> None:
    """Receive the progress of an exploration and ignore it."""


def explore(
    model: Model, limit: int, goal: Goal = no_goal, report: Callable[[Exploration], None] = ignored
) -> Exploration:
    """Visit up to `limit` states, until an invariant does not hold or the goal is reached."""
    began = time.monotonic()
    collects = gc.isenabled()
    gc.disable()  # states contain no cycles, and a collection would traverse all of them
    try:
        return _Search(model, limit, goal, report).run(began)
    finally:
        if collects:
            gc.enable()


class _Search:
    """One exploration."""

    def __init__(self, model: Model, limit: int, goal: Goal, report: Callable[[Exploration], None]) -> None:
        self._model = model
        self._limit = limit
        self._goal = goal
        self._report = report
        self._result = Exploration()
        self._came_from: dict[int, int] = {}

    def run(self, began: float) -> Exploration:
        first = representative(self._model.initial())
        self._came_from[hash(first)] = 0
        result = self._result
        states = [first]
        while states and not self._is_over():
            result.depth += 1
            states = self._next_depth(states)
        result.is_complete = not states and not result.found
        result.seconds = time.monotonic() - began
        self._report(result)
        return result

    def _is_over(self) -> bool:
        return bool(self._result.found) or self._result.states >= self._limit

    def _next_depth(self, states: list[State]) -> list[State]:
        """Return the new states that are one step away from `states`."""
        reached: list[State] = []
        result = self._result
        for count, state in enumerate(states):
            self._expand(state, reached)
            if count % REPORT_EVERY == 0:
                self._report(result)
            if self._is_over():
                break
        return reached

    def _expand(self, state: State, reached: list[State]) -> None:
        came_from, result, origin = self._came_from, self._result, hash(state)
        for step, after in self._model.steps(state):
            result.transitions += 1
            found = "" if marks_stay(state, step, after) else marks_stay.__name__
            after = representative(after)
            name = hash(after)
            if name in came_from and not found:
                continue
            came_from.setdefault(name, origin)
            result.states = len(came_from)
            found = found or broken(self._model, after) or ("goal" if self._goal(after) else "")
            if found:
                result.found = found
                result.trace = self._trace(origin, name)
                return
            reached.append(after)

    def _trace(self, origin: int, last: int) -> Trace:
        """Return the steps from the initial state to the state with the hash `origin`, and on to `last`."""
        names = [last]
        while origin:
            names.append(origin)
            origin = self._came_from[origin]
        trace: Trace = []
        state = self._model.initial()
        for name in reversed(names[:-1]):
            step, state = next(
                (step, after) for step, after in self._model.steps(state) if hash(representative(after)) == name
            )
            trace.append((step, state))
        return trace
