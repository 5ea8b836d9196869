"""Which stores the leader wants in the set (rule 5): those that keep up, and never fewer than the minimum.

A store has kept up until now if it acknowledges the end of the log, and until its acknowledgement before if it
acknowledges the end that the log had then. (Comparing with the end of the log alone would remove stores under steady
load.) A store that fell behind has to keep up for a while from its return on. That time doubles with each removal.
"""

from dataclasses import dataclass

from skylarkmq.broker.ha.core.timings import Timings


@dataclass(slots=True)
class Progress:
    """How a store keeps up. `since`: it has kept up from then on. `wait`: time to keep up before it is added."""

    kept_up_at: float
    since: float
    wait: float
    heard_at: float
    end_at_ack: int = 0


class Progresses:
    """The progress of all stores that have linked to this leader in its term."""

    def __init__(self, timings: Timings, started: float) -> None:
        self._timings = timings
        self._started = started
        self._stores: dict[str, Progress] = {}

    def heard_at(self, store_id: str) -> float:
        """Return when the store was heard last; the start of the term if never."""
        found = self._stores.get(store_id)
        return found.heard_at if found else self._started

    def acknowledged(self, store_id: str, synced: int, end: int, now: float) -> None:
        """A store acknowledged `synced`, at a time when the log's end is `end`."""
        store = self._stores.get(store_id)
        if store is None:
            store = self._stores[store_id] = Progress(self._started, now, self._timings.keep_up_s, now, end)
        kept_up_at = store.kept_up_at
        if synced >= end:
            kept_up_at = now
        elif synced >= store.end_at_ack:
            kept_up_at = store.heard_at  # it had all bytes of that time
        if kept_up_at - store.kept_up_at > self._timings.behind_s:
            store.since = kept_up_at
        store.kept_up_at, store.heard_at, store.end_at_ack = kept_up_at, now, end

    def wanted(
        self, in_sync: frozenset[str], own: str, minimum: int, may_join: frozenset[str], now: float
    ) -> frozenset[str]:
        """Return the set to have: without stores that are behind, with those that caught up.

        `may_join`: linked stores that have all committed bytes. If the set would be too small, stores are added without
        a wait, and if that is not enough, those that are behind by the shortest time stay in it.
        """
        behind = [store for store in sorted(in_sync - {own}) if self._is_behind(store, now)]
        staying = in_sync - frozenset(behind)
        ready = self._keeps_up if len(staying) < minimum else self._has_caught_up
        wanted = staying | frozenset(store for store in may_join - in_sync if ready(store, now))
        behind.sort(key=self._kept_up_at)
        while len(wanted) < minimum and behind:
            wanted |= {behind.pop()}
        return wanted

    def is_heard(self, store_id: str, now: float) -> bool:
        """Return whether the store acknowledged anything not long ago."""
        return now - self.heard_at(store_id) <= self._timings.lost_s

    def removed(self, store_id: str) -> None:
        """The store is no longer in the set."""
        if store_id in self._stores:
            store = self._stores[store_id]
            store.wait = min(2 * store.wait, self._timings.longest_wait_s)

    def _kept_up_at(self, store_id: str) -> float:
        store = self._stores.get(store_id)
        return store.kept_up_at if store else self._started

    def _is_behind(self, store_id: str, now: float) -> bool:
        return now - self._kept_up_at(store_id) > self._timings.behind_s

    def _keeps_up(self, store_id: str, now: float) -> bool:
        return store_id in self._stores and not self._is_behind(store_id, now)

    def _has_caught_up(self, store_id: str, now: float) -> bool:
        return self._keeps_up(store_id, now) and now - self._stores[store_id].since >= self._stores[store_id].wait
