"""Limits for the state that clients make the broker keep: topics, queues, groups, subscriptions, locks, offsets.

Each limit has a setting. A request that would exceed a limit is rejected with SYSTEM_BUSY (2) and a remark that
contains the setting, its value, and the requested amount; it changes nothing. A limit rejects growth only. A store that
is above a limit already opens and works, with a warning at the start, and existing entries may be changed, renewed or
removed.

Tables and processors share one `Limits`. Metrics read the current usage of each limit at scrape time, so that nothing
is counted twice. Source: docs/reference/behaviour.md, "Limits".
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

log = logging.getLogger(__name__)

_LOGGED_EVERY: Final = 1_000  # rejections of one limit per log line


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the limits. Official clients and tools stay far below all of them."""

    max_topics: int = 65_536  # topics, including system topics
    max_queues_per_topic: int = 4_096  # queues for reading or for writing, whichever number is larger
    max_queues: int = 65_536  # queues of all topics; the system topics have about 1,100
    max_subscription_groups: int = 32_768  # consumer groups; each has a retry topic
    max_groups_per_client: int = 4_096  # producer and consumer groups on one connection, together
    max_subscriptions_per_group: int = 4_096  # topics that a group subscribes to
    max_locks_per_group: int = 16_384  # queues that the members of a group consume in order
    max_consumer_offsets: int = 1_000_000  # committed offsets, one for each group and queue
    max_client_id_length: int = 1_024  # characters of a client id
    max_expression_length: int = 65_536  # characters of a subscription's tags or SQL92 expression


class Creations(Protocol):
    """Counts the topics, or the groups, that accounts have created (`broker/access/created_names.py`)."""

    def check(self, names: Sequence[str]) -> None:
        """Raise RequestError if the current request may not create these names."""

    def note(self, name: str) -> None:
        """Count a name that was created by the current request."""


class Limit:
    """One limit: `setting` is the key of `most`; `used` returns the current usage, if it can be counted.

    Set by the table that the limit is for: `used`. The table is made with the limit, because it checks its growth.
    """

    def __init__(self, setting: str, most: int) -> None:
        self.setting = setting
        self.most = most
        self.refused = 0
        self.used: Callable[[], int] | None = None

    def __repr__(self) -> str:
        return f"<Limit {self.setting}={self.most} refused={self.refused}>"

    def refusal(self, what: str) -> RequestError:
        """Return the error to raise for a request that exceeds the limit; `what` is the requested amount."""
        if self.refused % _LOGGED_EVERY == 0:
            log.warning("limit reached, request rejected setting=%s most=%d refused=%d what=%s", *self._figures(), what)
        self.refused += 1
        return RequestError(ResponseCode.SYSTEM_BUSY, f"[LIMIT]{what}, the limit is {self.setting}={self.most}")

    def _figures(self) -> tuple[str, int, int]:
        return self.setting, self.most, self.refused

    def check(self, wanted: int, what: str) -> None:
        """Raise the refusal if `wanted` exceeds the limit, for a count that starts at zero with each request."""
        if wanted > self.most:
            raise self.refusal(f"{wanted} {what}")


class Limits:
    """All limits of one broker."""

    def __init__(self, config: LimitsConfig | None = None) -> None:
        config = config or LimitsConfig()
        self.topics = Limit("maxTopics", config.max_topics)
        self.queues_per_topic = Limit("maxQueuesPerTopic", config.max_queues_per_topic)
        self.queues = Limit("maxQueues", config.max_queues)
        self.groups = Limit("maxSubscriptionGroups", config.max_subscription_groups)
        self.groups_per_client = Limit("maxGroupsPerClient", config.max_groups_per_client)
        self.subscriptions = Limit("maxSubscriptionsPerGroup", config.max_subscriptions_per_group)
        self.locks_per_group = Limit("maxLocksPerGroup", config.max_locks_per_group)
        self.offsets = Limit("maxConsumerOffsets", config.max_consumer_offsets)
        self.client_id = Limit("maxClientIdLength", config.max_client_id_length)
        self.expression = Limit("maxExpressionLength", config.max_expression_length)

    def __iter__(self) -> Iterator[Limit]:
        return iter(vars(self).values())

    def __repr__(self) -> str:
        return f"<Limits {list(self)}>"

    def configure(self, config: LimitsConfig) -> None:
        """Apply these values from now on."""
        for mine, theirs in zip(self, Limits(config), strict=True):
            mine.most = theirs.most

    def warn_if_above(self) -> None:
        """Log each limit that the store exceeds at the start."""
        for limit in self:
            used = limit.used() if limit.used is not None else 0
            if used > limit.most:
                log.warning(
                    "store is above a limit, growth is rejected setting=%s most=%d used=%d",
                    limit.setting,
                    limit.most,
                    used,
                )
