"""What may be set, one frozen struct per part. Defaults are those of RocketMQ's own clients where they have one."""

import os
import ssl

import msgspec

from skylarkmq.clients.connection.signing import Credentials
from skylarkmq.clients.connection.topic_route import MAX_ROUTE_QUEUES
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a client trusts, and what it shows. Files are PEM; they are read once, when the client is made."""

    trust_cert_path: str | os.PathLike[str] | None = None  # who may sign servers' certificates; default: the system's
    check_server: bool = True  # False: anybody may answer, as with RocketMQ's clients unless they are told otherwise
    check_host_name: bool = True  # the certificate must also be for the host that was dialled
    cert_path: str | os.PathLike[str] | None = None  # for servers that ask for one; a chain
    key_path: str | os.PathLike[str] | None = None  # default: it stands with the certificate
    key_password: str | None = None

    def __repr__(self) -> str:
        return f"<TlsSettings trust={self.trust_cert_path} certificate={self.cert_path}>"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What producers and consumers share. Seconds."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 3.0  # any request that has no time of its own
    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0  # a broker forgets a client after 120 s of silence
    backoff_min_s: float = 0.1  # pause before the second attempt to reach an address; doubles with each
    backoff_max_s: float = 5.0
    max_in_flight: int = 8192  # requests without an answer on one connection; more wait
    max_route_queues: int = MAX_ROUTE_QUEUES  # of one topic, to read or to write; a longer route is an InvalidResponse
    tls: TlsSettings | ssl.SSLContext | None = None  # None: plain; also for name servers
    credentials: Credentials | None = None  # None: requests are not signed


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are sent."""

    send_timeout_s: float = 3.0  # for a send with all its retries
    retries: int = 2  # on other queues, if the answer or the transport allows it
    max_message_bytes: int = 4 * 1024 * 1024  # of a body before compression, or of a batch; the broker's maxMessageSize
    compress_above_bytes: int = 4096  # bodies of this size and more are compressed, if that makes them smaller
    compression_level: int = 5  # zlib's
    default_topic: str = "TBW102"  # the template of topics that brokers create at the first message
    default_topic_queues: int = 4


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How queues are read."""

    pull_batch: int = 32  # messages per pull
    pull_bytes: int = 256 * 1024  # bytes per pull; only brokers of RocketMQ 5 look at it
    suspend_s: float = 15.0  # how long a broker may hold a pull that finds nothing
    pull_timeout_s: float = 30.0  # more than `suspend_s`
    max_queue_messages: int = 1000  # of one queue, received and not finished
    max_messages: int = 10_000  # of all queues, received and not begun
    max_bytes: int = 100 * 1024 * 1024  # of all queues, received and not finished, inflated; each has an equal share
    max_inflated_bytes: int = MAX_PAYLOAD_BYTES  # of one compressed body; larger ones are handed over as stored
    max_queue_span: int = 2000  # between the first not finished offset of a queue and its last
    commit_interval_s: float = 5.0
    rebalance_interval_s: float = 20.0  # at the latest; changes of the group are noticed at once
    handover_pause_s: float = (
        0.2  # before a queue is read that another may be giving up; of orderly ones the lock counts
    )
    concurrency: int = 20  # messages that a handler works on at the same time
    consume_timeout_s: float | None = 900.0  # a handler that takes longer is cancelled; orderly ones have no limit
    max_reconsume_times: int | None = None  # then dead letters; None: 16, orderly as often as it takes
    retry_pause_s: float = 1.0  # before a message that cannot be sent back is tried again; doubles with each failure
    retry_pause_max_s: float = 60.0
    suspend_pause_s: float = 1.0  # how long an orderly queue rests behind a failure
    lock_renewal_s: float = 20.0  # a broker forgets the lock of a queue after 60 s (rebalanceLockMaxLiveTime)
    lock_life_s: float = 30.0  # how long a lock counts here without renewal; well below that
    stop_timeout_s: float = 30.0  # how long running handlers may take to finish when the consumer stops
