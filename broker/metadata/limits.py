"""Limits for what callers make the broker keep: topics, queues, groups, subscriptions, locks, committed offsets.

Each limit has a setting. A request that would exceed one is refused with SYSTEM_BUSY (2) and a remark that names the
setting, its value, and what was asked for; nothing of it is kept. A limit refuses growth only: a store that is above it
already opens and works, with a warning at the start, and what there is may be changed, renewed or removed.

`Limits` is what the tables and processors share. How much of each limit is used is asked when metrics are scraped, so
that nothing is counted twice. Source: docs/formats.md, "Limits".
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

log = logging.getLogger(__name__)

_LOGGED_EVERY: Final = 1_000  # refusals of one limit between two lines of the log


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values. Official clients and tools stay far below all of them."""

    max_topics: int = 65_536
    max_queues_per_topic: int = 4_096  # reading or writing, whichever is more
    max_queues: int = 65_536  # of all topics; the system's own have some 1,100
    max_subscription_groups: int = 32_768  # each has a retry topic
    max_groups_per_client: int = 4_096  # of producers and consumers together, on one connection
    max_subscriptions_per_group: int = 4_096  # topics
    max_locks_per_group: int = 16_384  # queues that a group's members consume in order
    max_consumer_offsets: int = 1_000_000  # a group in a queue each
    max_client_id_length: int = 1_024  # characters
    max_expression_length: int = 65_536  # characters of a subscription's tags or SQL92


class Limit:
    """One limit: `setting` names the key of `most`; `used` returns how much there is, where that can be counted."""

    def __init__(self, setting: str, most: int) -> None:
        self.setting = setting
        self.most = most
        self.refused = 0
        self.used: Callable[[], int] | None = None

    def __repr__(self) -> str:
        return f"<Limit {self.setting}={self.most} refused={self.refused}>"

    def refusal(self, what: str) -> RequestError:
        """Return the error for a request that asks for more, to be raised; `what` says for how much."""
        if self.refused % _LOGGED_EVERY == 0:
            log.warning("limit reached, refused setting=%s most=%d refused=%d what=%s", *self._figures(), what)
        self.refused += 1
        return RequestError(ResponseCode.SYSTEM_BUSY, f"[LIMIT]{what}, the limit is {self.setting}={self.most}")

    def _figures(self) -> tuple[str, int, int]:
        return self.setting, self.most, self.refused

    def check(self, wanted: int, what: str) -> None:
        """Raise the refusal if that many are wanted of something whose number starts at zero with each request."""
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
        """Refuse growth by these values from now on."""
        for mine, theirs in zip(self, Limits(config), strict=True):
            mine.most = theirs.most

    def warn_if_above(self) -> None:
        """Log each limit that a store was above before this process began."""
        for limit in self:
            used = limit.used() if limit.used is not None else 0
            if used > limit.most:
                log.warning(
                    "store is above a limit, nothing more is accepted setting=%s most=%d used=%d",
                    *(limit.setting, limit.most, used),
                )
