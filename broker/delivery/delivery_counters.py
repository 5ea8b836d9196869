"""What each group was given of each topic, or gave back: messages and bytes in answers to its pulls, or sent back.

Three additions per pull that found something. Figures go with their topic, and with their group. Source:
docs/formats.md, "Pull", "Retries and dead letters".
"""

from collections.abc import Mapping

import msgspec


class Delivered(msgspec.Struct, gc=False):
    """Totals since the start; bytes are those of the records, `pulls` those that found something, or requests."""

    messages: int = 0
    bytes: int = 0
    pulls: int = 0


class DeliveriesStatistics(msgspec.Struct, frozen=True):
    """`rows`: pairs of topic and group."""

    rows: int


class Deliveries:
    """Totals by topic, then by group. One of these counts what is pulled, another what is sent back."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, Delivered]] = {}

    def __repr__(self) -> str:
        return f"<Deliveries topics={len(self._topics)}>"

    def note(self, topic: str, group: str, messages: int, size: int) -> None:
        """A pull of `group` is answered with messages of `size` bytes."""
        row = self.row(topic, group)
        row.messages += messages
        row.bytes += size
        row.pulls += 1

    def row(self, topic: str, group: str) -> Delivered:
        """The totals of a group from a topic, to be added to; until either is deleted."""
        groups = self._topics.get(topic)
        if groups is None:
            groups = self._topics[topic] = {}
        row = groups.get(group)
        if row is None:
            row = groups[group] = Delivered()
        return row

    def table(self) -> Mapping[str, Mapping[str, Delivered]]:
        """The totals, to look at."""
        return self._topics

    def remove_topic(self, topic: str) -> None:
        """Forget what groups were given of a deleted topic."""
        self._topics.pop(topic, None)

    def remove_group(self, group: str) -> None:
        """Forget what a deleted group was given."""
        for topic in [topic for topic, groups in self._topics.items() if groups.pop(group, None) and not groups]:
            del self._topics[topic]

    def statistics(self) -> DeliveriesStatistics:
        """The figures now."""
        return DeliveriesStatistics(rows=sum(map(len, self._topics.values())))
