"""A bounded cache of decisions of access control. It is cleared when it is full, and by its owner after each change.

Names in requests have any length, so decisions about long names are not cached.
"""

from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_DECISIONS: Final = 16_384
MOST_NAME_CHARACTERS: Final = 255


class DecisionCache(dict[K, V]):
    """Decisions by what they depend on."""

    def remember(self, key: K, decision: V, names: Iterable[str | None]) -> None:
        """Cache a decision, unless one of the `names` in its key is too long."""
        if any(name is not None and len(name) > MOST_NAME_CHARACTERS for name in names):
            return
        if len(self) >= MOST_DECISIONS:
            self.clear()
        self[key] = decision
