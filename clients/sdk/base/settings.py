"""Limits and times of the SDK, one frozen struct for each part. Times are in seconds.

Where RocketMQ's own clients have the same setting, its default is theirs. A value that is not allowed raises
InvalidArgument when the struct is made.
"""

import os
import ssl
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_number
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES

MAX_ROUTE_QUEUES: Final = 65_536
"""Default of `ClientSettings.max_route_queues`; the default limit of a broker for all of its queues."""
_NUMBERS: Final = frozenset({int, float})
_OPTIONAL_NUMBERS: Final = (int | None, float | None)
_AT_LEAST_ONE: Final = frozenset({"concurrency", "default_topic_queues", "max_in_flight", "pull_batch"})


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client checks servers, and its own certificate. Files are PEM, read once when the client is made."""

    trust_cert_path: str | os.PathLike[str] | None = None  # authorities of servers' certificates; default: the system's
    check_server: bool = True  # False accepts any server, which is the default of RocketMQ's clients
    check_host_name: bool = True  # the certificate must be issued for the host that the client connects to
    cert_path: str | os.PathLike[str] | None = None  # certificate chain, for servers that require one
    key_path: str | os.PathLike[str] | None = None  # default: the key is in the file of the certificate
    key_password: str | None = None

    def __repr__(self) -> str:
        return f"<TlsSettings trust={self.trust_cert_path} certificate={self.cert_path}>"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A struct of settings. InvalidArgument if one of its numbers is negative, or no number."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            value = getattr(self, field.name)
            if field.type in _NUMBERS or (field.type in _OPTIONAL_NUMBERS and value is not None):
                check_number(field.name, value, 1 if field.name in _AT_LEAST_ONE else 0)


class ClientSettings(Limits, frozen=True, kw_only=True):
    """Settings of the client that producers and consumers share."""

    connect_timeout_s: float = 3.0  # for a connection, with its TLS handshake
    request_timeout_s: float = 3.0  # for a request without a timeout of its own
    call_timeout_s: float = 30.0  # for a call that may take several requests, as those of `Admin` and of consumers
    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0  # a broker removes a client after 120 s without a heartbeat
    backoff_min_s: float = 0.1  # pause before the second attempt to reach an address; doubles with each attempt
    backoff_max_s: float = 5.0
    max_in_flight: int = 8192  # requests without a response on one connection; further requests wait
    max_route_queues: int = MAX_ROUTE_QUEUES  # of one topic, to read or to write; a longer route is an InvalidResponse
    tls: TlsSettings | ssl.SSLContext | None = None  # for brokers and name servers; None: no TLS
    credentials: Credentials | None = None  # None: requests are not signed


class ProducerSettings(Limits, frozen=True, kw_only=True):
    """Settings of a producer."""

    send_timeout_s: float = 3.0  # for a send with all its attempts, and for other calls of a producer
    retries: int = 2  # further attempts on other queues, if the response or the transport allows a repetition
    max_message_bytes: int = 4 * 1024 * 1024  # of a body before compression, or of a batch; the broker's maxMessageSize
    compress_above_bytes: int = 4096  # smaller bodies are not compressed, nor those that compression does not shrink
    compression_level: int | None = None  # of the codec; None: 5 for zlib, 0 for lz4, 3 for zstd
    default_topic: str = "TBW102"  # the template of topics that brokers create at the first message
    default_topic_queues: int = 4


class ConsumerSettings(Limits, frozen=True, kw_only=True):
    """Settings of a consumer."""

    pull_batch: int = 32  # messages per pull
    pull_bytes: int = 256 * 1024  # bytes per pull; brokers before RocketMQ 5 ignore it
    suspend_s: float = 15.0  # how long a broker may hold a pull while the queue has no new message
    pull_timeout_s: float = 30.0  # more than `suspend_s`
    pull_retry_pause_s: float = 1.0  # before a failed pull is repeated
    max_queue_messages: int = 1000  # of one queue, received and not acknowledged
    max_messages: int = 10_000  # of all queues, received and not yet passed to the application
    max_bytes: int = 100 * 1024 * 1024  # inflated bodies of all queues, not acknowledged; queues have equal shares
    max_inflated_bytes: int = MAX_PAYLOAD_BYTES  # of one compressed body; larger ones are not delivered
    max_queue_span: int = 2000  # from the first unacknowledged offset of a queue to the last received one
    commit_interval_s: float = 5.0
    rebalance_interval_s: float = 20.0  # the longest interval; a change of the group's members rebalances at once
    handover_pause_s: float = 0.2  # before reading a queue that its former owner may still be committing; not orderly
    concurrency: int = 20  # handler calls at the same time
    consume_timeout_s: float | None = 900.0  # a handler that takes longer is canceled; None and orderly: no limit
    max_reconsume_times: int | None = None  # redeliveries before the dead letter; None: 16, no limit if orderly
    retry_pause_s: float = 1.0  # before a message that could not be sent back is retried; doubles with each failure
    retry_pause_max_s: float = 60.0
    suspend_pause_s: float = 1.0  # how long an orderly queue pauses after a failure
    lock_renewal_s: float = 20.0  # a broker releases the lock of a queue after 60 s (rebalanceLockMaxLiveTime)
    lock_life_s: float = 30.0  # how long a lock is used without renewal; well below the broker's time
    stop_timeout_s: float = 30.0  # how long running handlers may take to finish when the consumer stops
