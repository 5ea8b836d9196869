"""What to read of a cluster's topics, and how. The options of Spark's `format("rocketmq")` extend this struct.

The start can be set in three ways; the first of these that is set counts: a time for all queues (`starting_timestamp`),
times by topic or queue (`starting_times`), offsets (`starting_offsets`). The same holds for the end.
"""

import msgspec

from skylarkmq.clients.arrow.schema import Columns
from skylarkmq.clients.arrow.topic.positions import Positions, Times
from skylarkmq.clients.sdk.base.settings import ClientSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.bodies.heartbeat import SQL92, TAG, SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.filters.tag import EVERYTHING, subscribe


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a cluster. `name_server`: addresses, separated by semicolons."""

    name_server: str
    credentials: Credentials | None = None  # None: requests are not signed
    tls: TlsSettings | None = None  # None: connections are not encrypted

    def client_settings(self) -> ClientSettings:
        """Return the SDK settings that these options stand for."""
        return ClientSettings(tls=self.tls, credentials=self.credentials)


class TopicOptions(ClusterOptions, frozen=True, kw_only=True):
    """The messages to read, and the limits of the requests. Times are milliseconds."""

    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: tuple[MessageQueue, ...] | None = None
    starting_offsets: str | Positions | None = None
    starting_timestamp: int | None = None
    starting_times: Times | None = None
    when_no_later_message: str = "error"
    ending_offsets: str | Positions = "latest"
    ending_timestamp: int | None = None
    ending_times: Times | None = None
    fail_on_data_loss: bool = True
    columns: Columns = Columns()
    expression: str = EVERYTHING
    expression_type: str = TAG
    group: str | None = None
    group_prefix: str = "skylark-arrow"  # of pulls without `group`
    pull_batch: int = 32
    pull_timeout_ms: int = 3_000
    lookup_retries: int = 3
    lookup_interval_ms: int = 10
    broker_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        given = [self.subscribe is not None, self.subscribe_pattern is not None, self.assign is not None]
        if sum(given) != 1:
            raise ValueError("give exactly one of subscribe, subscribePattern and assign")
        if self.expression_type == SQL92 and self.expression == EVERYTHING:
            raise ValueError("expressionType SQL92 needs a subExpression")

    @property
    def pull_group(self) -> str:
        """The consumer group of the pulls."""
        return self.group or self.group_prefix

    @property
    def takes_everything(self) -> bool:
        """Whether no message is filtered out."""
        return self.expression_type == TAG and self.expression == EVERYTHING

    @property
    def is_by_tags(self) -> bool:
        """Whether messages are filtered by their tags."""
        return self.expression_type == TAG and self.expression != EVERYTHING

    def subscription(self, topic: str) -> SubscriptionData:
        """Return the subscription for pulls of a topic."""
        if self.expression_type == TAG:
            return subscribe(topic, self.expression, 0)
        return SubscriptionData(topic=topic, sub_string=self.expression, expression_type=self.expression_type)
