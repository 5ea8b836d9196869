"""Counters per group and topic: messages and bytes in responses to pulls, or negatively acknowledged.

A pull that finds messages costs three additions. Figures are removed with their topic and with their group. Source:
docs/reference/wire.md, "Pull", "Retries and dead letters".
"""

from collections.abc import Mapping

import msgspec


class DeliveryCounts(msgspec.Struct, gc=False):
    """Totals since the start; `bytes` of the records; `pulls` that found messages, or requests."""

    messages: int = 0
    bytes: int = 0
    pulls: int = 0


class DeliveryCountersStatistics(msgspec.Struct, frozen=True):
    """`rows`: pairs of topic and group."""

    rows: int


class DeliveryCounters:
    """Totals by topic, then by group. One instance counts pulled messages, another one those sent back."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, DeliveryCounts]] = {}

    def __repr__(self) -> str:
        return f"<DeliveryCounters topics={len(self._topics)}>"

    def note(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count a pull of `group` whose response has messages of `size` bytes."""
        row = self.row(topic, group)
        row.messages += messages
        row.bytes += size
        row.pulls += 1

    def row(self, topic: str, group: str) -> DeliveryCounts:
        """Return the counters of a group in a topic, for additions; valid until either is deleted."""
        groups = self._topics.get(topic)
        if groups is None:
            groups = self._topics[topic] = {}
        row = groups.get(group)
        if row is None:
            row = groups[group] = DeliveryCounts()
        return row

    def bytes(self, topic: str, group: str) -> int:
        """Return the bytes that a group has received from a topic; 0 if it has received none since either existed."""
        row = self._topics.get(topic, {}).get(group)
        return 0 if row is None else row.bytes

    def table(self) -> Mapping[str, Mapping[str, DeliveryCounts]]:
        """Return all totals; do not change them."""
        return self._topics

    def remove_topic(self, topic: str) -> None:
        """Remove the totals of a deleted topic."""
        self._topics.pop(topic, None)

    def remove_group(self, group: str) -> None:
        """Remove the totals of a deleted group."""
        for topic in [topic for topic, groups in self._topics.items() if groups.pop(group, None) and not groups]:
            del self._topics[topic]

    def statistics(self) -> DeliveryCountersStatistics:
        """Return the current figures."""
        return DeliveryCountersStatistics(rows=sum(map(len, self._topics.values())))
