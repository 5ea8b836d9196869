"""Limits and times of the SDK, one frozen struct for each part. Times are in seconds.

Where RocketMQ's own clients have the same setting, its default is theirs. A value that is not allowed raises
InvalidArgument when the struct is made.
"""

import os
import ssl
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_number
from skylarkmq.clients.sdk.base.field_docstrings import explained
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES

MAX_ROUTE_QUEUES: Final = 65_536
"""Default of `ClientSettings.max_route_queues`; the default limit of a broker for all of its queues."""
_NUMBERS: Final = frozenset({int, float})
_OPTIONAL_NUMBERS: Final = (int | None, float | None)
_AT_LEAST_ONE: Final = frozenset({"concurrency", "default_topic_queues", "max_in_flight", "pull_batch"})


@explained
class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client checks servers, and its own certificate. Files are PEM, read once when the client is made."""

    trust_cert_path: str | os.PathLike[str] | None = None
    """PEM file of the authorities of servers' certificates. None: the system's."""
    check_server: bool = True
    """Whether the server's certificate is checked. False accepts any server, as RocketMQ's clients do by default."""
    check_host_name: bool = True
    """Whether the certificate must be issued for the host that the client connects to."""
    cert_path: str | os.PathLike[str] | None = None
    """PEM file of the client's certificate chain, for servers that require one."""
    key_path: str | os.PathLike[str] | None = None
    """PEM file of the private key. None: the key is in the file of the certificate."""
    key_password: str | None = None
    """Password of the private key. None: the key is not encrypted."""

    def __repr__(self) -> str:
        return f"<TlsSettings trust={self.trust_cert_path} certificate={self.cert_path}>"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A struct of settings. InvalidArgument if one of its numbers is negative, or no number."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            value = getattr(self, field.name)
            if field.type in _NUMBERS or (field.type in _OPTIONAL_NUMBERS and value is not None):
                check_number(field.name, value, 1 if field.name in _AT_LEAST_ONE else 0)


@explained
class ClientSettings(Limits, frozen=True, kw_only=True):
    """Settings of the client that producers and consumers share."""

    connect_timeout_s: float = 3.0
    """Time limit of opening a connection, with its TLS handshake."""
    request_timeout_s: float = 3.0
    """Time limit of a request without a timeout of its own."""
    call_timeout_s: float = 30.0
    """Time limit of a call that may take several requests, as those of `Admin` and of consumers."""
    route_refresh_s: float = 30.0
    """Interval at which the routes of topics in use are read again."""
    heartbeat_s: float = 30.0
    """Interval of heartbeats. A broker removes a client after 120 s without one."""
    backoff_min_s: float = 0.1
    """Pause before the second attempt to reach an address; it doubles with each attempt."""
    backoff_max_s: float = 5.0
    """Longest pause between attempts to reach an address."""
    max_in_flight: int = 8192
    """Requests without a response on one connection; further requests wait. At least 1."""
    max_route_queues: int = MAX_ROUTE_QUEUES
    """Queues of one topic, to read or to write; a route with more is an InvalidResponse."""
    tls: TlsSettings | ssl.SSLContext | None = None
    """TLS of connections to brokers and name servers. None: no TLS."""
    credentials: Credentials | None = None
    """Keys that sign the requests. None: requests are not signed."""


@explained
class ProducerSettings(Limits, frozen=True, kw_only=True):
    """Settings of a producer."""

    send_timeout_s: float = 3.0
    """Time limit of a send with all its attempts, and of other calls of a producer."""
    retries: int = 2
    """Further attempts on other queues, if the response or the transport allows a repetition."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Bytes of a body before compression, or of a batch: the broker's `maxMessageSize`."""
    compress_above_bytes: int = 4096
    """Bodies below this size are not compressed, nor those that compression does not shrink."""
    compression_level: int | None = None
    """Level of the codec. None: 5 for zlib, 0 for lz4, 3 for zstd."""
    default_topic: str = "TBW102"
    """The template of topics that brokers create at the first message."""
    default_topic_queues: int = 4
    """Queues on each broker of a topic that is created at the first message. At least 1."""


@explained
class ConsumerSettings(Limits, frozen=True, kw_only=True):
    """Settings of a consumer."""

    pull_batch: int = 32
    """Messages of one pull. At least 1."""
    pull_bytes: int = 256 * 1024
    """Bytes of one pull. Brokers before RocketMQ 5 ignore it."""
    suspend_s: float = 15.0
    """How long a broker may hold a pull while the queue has no new message."""
    pull_timeout_s: float = 30.0
    """Time limit of a pull; more than `suspend_s`."""
    pull_retry_pause_s: float = 1.0
    """Pause before a failed pull is repeated."""
    max_queue_messages: int = 1000
    """Messages of one queue that are received and not acknowledged."""
    max_messages: int = 10_000
    """Messages of all queues that are received and not yet passed to the application."""
    max_bytes: int = 100 * 1024 * 1024
    """Bytes of the unacknowledged messages of all queues, bodies inflated; queues have equal shares."""
    max_inflated_bytes: int = MAX_PAYLOAD_BYTES
    """Bytes of one compressed body after inflation; larger bodies are not delivered."""
    max_queue_span: int = 2000
    """Offsets from the first unacknowledged message of a queue to the last received one."""
    commit_interval_s: float = 5.0
    """Interval of commits."""
    rebalance_interval_s: float = 20.0
    """Longest interval of rebalances; a change of the group's members rebalances at once."""
    handover_pause_s: float = 0.2
    """Pause before reading a queue that its former owner may still be committing. Orderly consumers do not pause."""
    concurrency: int = 20
    """Handler calls that run at the same time. At least 1."""
    consume_timeout_s: float | None = 900.0
    """Time limit of a handler call; a longer one is canceled. None, and orderly consumers: no limit."""
    max_reconsume_times: int | None = None
    """Redeliveries before a message becomes a dead letter. None: 16; orderly consumers: no limit."""
    retry_pause_s: float = 1.0
    """Pause before a message that could not be sent back is retried; it doubles with each failure."""
    retry_pause_max_s: float = 60.0
    """Longest pause between these attempts."""
    suspend_pause_s: float = 1.0
    """How long the queue of an orderly consumer pauses after a failure."""
    lock_renewal_s: float = 20.0
    """Interval of lock renewals of an orderly consumer. A broker releases a lock after 60 s, its
    `rebalanceLockMaxLiveTime`."""
    lock_life_s: float = 30.0
    """How long a lock is used without renewal; well below the broker's time."""
    stop_timeout_s: float = 30.0
    """How long running handlers may take to finish when the consumer stops."""
