"""What a node has seen of the other members: signs of life, and responses to pings. For liveness only."""

from typing import Final

from skylarkmq.broker.ha.core.events import Life
from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.core.timings import Timings

NEVER: Final = float("-inf")


class Peers:
    """The members as seen by one node."""

    def __init__(self, timings: Timings) -> None:
        self._reached: dict[str, float] = {}
        self._lives: dict[str, Life | None] = {}
        self._reached_s = 2 * timings.beat_s + timings.rank_s

    def life_seen(self, node: str, life: Life | None) -> None:
        """The store of decisions has this sign of life; None: it expired."""
        self._lives[node] = life

    def reached(self, node: str, now: float) -> None:
        """A member responded to a ping."""
        self._reached[node] = now

    def is_reached(self, node: str, now: float) -> bool:
        """Return whether a member responded just now."""
        return now - self._reached.get(node, NEVER) <= self._reached_s

    def has_expired(self, node: str) -> bool:
        """Return whether the sign of life of a member is known to be gone."""
        return self._lives.get(node, ...) is None

    def leads(self, record: GroupRecord) -> bool:
        """Return whether the leader of this record may lead: no sign of life says that it does not."""
        life = self._lives.get(record.leader, ...)
        return life is ... or (life is not None and life.leading == record.epoch)

    def has_store(self, node: str, store_id: str) -> bool:
        """Return whether a member's sign of life names this store."""
        life = self._lives.get(node)
        return life is not None and life.store_id == store_id
