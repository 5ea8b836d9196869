"""How far the log extends past the last message that each group pulled: what the group may have to read from disk.

There is one figure, in bytes, per topic, group and queue, from the last pull of the group that found messages.
RocketMQ calls it GROUP_GET_FALL_SIZE (`diskFallRecorded`). Figures are removed with their topic. Source:
docs/reference/wire.md, "Pull".
"""

from collections.abc import Callable

import msgspec


class FallBehindStatistics(msgspec.Struct, frozen=True):
    """`queues`: number of figures; `worst_bytes`: the largest of them."""

    queues: int
    worst_bytes: int


class FallBehind:
    """The figures by topic, then by group and queue id."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[tuple[str, int], int]] = {}

    def note(self, group: str, topic: str, queue_id: int, size: int) -> None:
        """Store that a pull of `group` ended `size` bytes before the end of the log."""
        self.figures(topic)[group, queue_id] = size

    def figures(self, topic: str) -> dict[tuple[str, int], int]:
        """Return the figures of a topic, for updates; valid until the topics change."""
        figures = self._topics.get(topic)
        if figures is None:
            figures = self._topics[topic] = {}
        return figures

    def of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the bytes; None if the group has not pulled that queue."""
        return self._topics.get(topic, {}).get((group, queue_id))

    def keep_existing(self, exists: Callable[[str], object]) -> None:
        """Remove the figures of topics that do not exist any more."""
        for topic in [topic for topic in self._topics if not exists(topic)]:
            del self._topics[topic]

    def remove_group(self, group: str) -> None:
        """Remove the figures of a deleted group."""
        for figures in self._topics.values():
            for queue in [queue for queue in figures if queue[0] == group]:
                del figures[queue]

    def statistics(self) -> FallBehindStatistics:
        """Return the current figures."""
        sizes = [size for figures in self._topics.values() for size in figures.values()]
        return FallBehindStatistics(len(sizes), max(sizes, default=0))

    def __repr__(self) -> str:
        return f"<FallBehind topics={len(self._topics)}>"
