"""The options of a write to topics."""

from typing import Final

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.spark.base.cluster_options import CLUSTER_ROWS, cluster_fields
from skylarkmq.clients.spark.base.options import Option, Table, duration_ms, flag, positive
from skylarkmq.clients.spark.base.request_retry import RetryLimit
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import check_group_name, check_topic_name


def topic_name(value: str) -> str:
    """Return a valid topic name."""
    try:
        check_topic_name(value.strip())
    except RequestError as error:
        raise ValueError(f"the name of a topic ({error.remark})") from error
    return value.strip()


def group_name(value: str) -> str:
    """Return a valid group name."""
    try:
        check_group_name(value.strip())
    except RequestError as error:
        raise ValueError(f"the name of a group ({error.remark})") from error
    return value.strip()


def write_id(value: str) -> str:
    """Return an id for marks, which must not contain a colon."""
    if not value.strip() or ":" in value or not value.isprintable():
        raise ValueError("a text without a colon")
    return value.strip()


class SinkOptions(ClusterOptions, frozen=True, kw_only=True):
    """The parsed options of a write."""

    topic: str | None = None
    producer_group: str
    batch_rows: int
    batch_bytes: int
    max_in_flight: int
    send_timeout_ms: int
    connect_timeout_ms: int
    retry_timeout_ms: int
    mark_rows: bool
    write_id: str | None = None
    skip_committed: bool
    ledger_topic: str
    ledger_group: str

    def __post_init__(self) -> None:
        if self.skip_committed and self.topic == self.ledger_topic:
            raise ValueError(f"topic {self.topic} is the ledger: write to another topic, or set ledgerTopic")

    def producer_settings(self) -> ProducerSettings:
        """Return the SDK settings that these options stand for."""
        return ProducerSettings(send_timeout_s=self.send_timeout_ms / 1000)

    def retry_limit(self) -> RetryLimit:
        """Return how long requests are retried, before and after the first success."""
        return RetryLimit(self.connect_timeout_ms / 1000, self.retry_timeout_ms / 1000)


OPTIONS: Final = Table(
    "rocketmq",
    SinkOptions,
    (
        *CLUSTER_ROWS,
        Option("topic", "topic", "topic of all rows; overrides the column `topic`", topic_name),
        Option("producerGroup", "producer_group", "producer group of the sends", group_name, "spark-rocketmq-sink"),
        Option("batchRows", "batch_rows", "maximum number of rows per request", positive, "256"),
        Option(
            "batchBytes",
            "batch_bytes",
            "maximum bytes per request, except for larger single rows; must be less than the brokers' maxMessageSize",
            positive,
            "524288",
        ),
        Option("maxInFlight", "max_in_flight", "maximum number of requests in flight per task", positive, "32"),
        Option("sendTimeoutMs", "send_timeout_ms", "how long to wait for a response", duration_ms, "5s"),
        Option(
            "retryTimeoutMs",
            "retry_timeout_ms",
            "how long a task repeats a request that was refused or got no response before it fails; 0: no repetition",
            duration_ms,
            "60s",
        ),
        Option(
            "connectTimeoutMs",
            "connect_timeout_ms",
            "maximum for retryTimeoutMs until a process has written a first message to a topic",
            duration_ms,
            "15s",
        ),
        Option(
            "markRows", "mark_rows", "set the property `SPARK_ROW`, which identifies the row of a message", flag, "true"
        ),
        Option(
            "writeId",
            "write_id",
            "id of a batch write in marks and in the ledger; streaming queries have their own id",
            write_id,
            default_text="a random one",
        ),
        Option(
            "skipCommittedBatches",
            "skip_committed",
            "skip batches that are in the ledger; batch writes need a writeId",
            flag,
            "false",
        ),
        Option("ledgerTopic", "ledger_topic", "the topic of the ledger", topic_name, "spark-rocketmq-ledger"),
        Option("ledgerGroup", "ledger_group", "the group of the ledger", group_name, "spark-rocketmq-ledger"),
    ),
    assemble=cluster_fields,
)
