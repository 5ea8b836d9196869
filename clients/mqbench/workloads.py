"""The parameters of a load. Presets have the names of OpenMessaging's benchmark.

1-topic-16-queues-1kb              latencies at a steady 50,000 messages per second
max-rate-1-topic-1-queue-1kb       the maximum rate of one queue
100-topics-1kb                     the steady rate, spread over 100 topics
backlog-1-topic-16-queues-1kb      a backlog is sent, then read
"""

from typing import Final

import msgspec

COMMANDS: Final = ("produce", "backlog")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A load on one broker or cluster. Sizes are bytes, times seconds, rates messages per second in total."""

    topics: int = 1
    queues: int = 4  # per topic
    size: int = 1024  # of a body
    batch: int = 1  # messages per request
    connections: int = 4
    in_flight: int = 256  # requests per connection
    rate: float | None = None  # None: full speed
    seconds: float = 10.0
    warmup_s: float = 1.0
    processes: int = 1
    backlog: int = 1_000_000  # messages
    pull: int = 32  # messages per pull
    topic: str = "mqbench"  # prefix of topic names

    def topic_names(self) -> list[str]:
        """Return the topics; all names have the same length."""
        digits = len(str(self.topics - 1))
        return [f"{self.topic}-{number:0{digits}d}" for number in range(self.topics)]

    def share(self, part: int, parts: int) -> "Workload":
        """Return the share of process `part` of `parts`."""
        connections = (self.connections + parts - 1 - part) // parts
        rate = None if self.rate is None else self.rate * connections / self.connections
        return msgspec.structs.replace(self, connections=connections, rate=rate, processes=1)


class Preset(msgspec.Struct, frozen=True):
    """A workload and the command that runs it."""

    command: str
    workload: Workload


STEADY: Final = 50_000.0

PRESETS: Final[dict[str, Preset]] = {
    "1-topic-1-queue-1kb": Preset("produce", Workload(queues=1, rate=STEADY)),
    "1-topic-16-queues-1kb": Preset("produce", Workload(queues=16, rate=STEADY)),
    "max-rate-1-topic-1-queue-1kb": Preset("produce", Workload(queues=1)),
    "max-rate-1-topic-16-queues-1kb": Preset("produce", Workload(queues=16)),
    "100-topics-1kb": Preset("produce", Workload(topics=100, queues=1, rate=STEADY)),
    "max-rate-100-topics-1kb": Preset("produce", Workload(topics=100, queues=1)),
    "backlog-1-topic-1-queue-1kb": Preset("backlog", Workload(queues=1)),
    "backlog-1-topic-16-queues-1kb": Preset("backlog", Workload(queues=16)),
}
