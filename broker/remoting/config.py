"""Settings of connections: limits on peers, and TLS on accepted and on outbound connections.

RocketMQ's TLS keys are JVM properties. None stands for a default that follows from other settings (`tls.py`).
"""

from enum import Enum
from pathlib import Path

import msgspec

from skylarkmq.protocol.frame import MAX_FRAME_BYTES


class RemotingConfig(msgspec.Struct, frozen=True):
    """Limits on peers, in bytes and seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES  # largest frame that is accepted
    max_connections: int = 16_384  # connections at a time; RocketMQ has no limit
    max_idle_s: float = 120.0  # a connection without data in either direction for this time is closed
    peer_backlog_bytes: int = 4 * 1024 * 1024  # unread responses of one peer
    total_backlog_bytes: int = 64 * 1024 * 1024  # unread responses of all peers
    unfinished_frames_bytes: int = 32 * 1024 * 1024  # partially received frames of all connections
    unfinished_frames_host_percent: int = 75  # share of it for the connections of one host
    unfinished_frame_min_rate: int = 16 * 1024  # bytes/s; slower peers are closed while others wait for the memory
    unfinished_frame_slow_s: float = 5.0  # period over which the rate is measured
    transfer_by_copying: bool = False  # file data is copied, without sendfile
    busy_poll_us: int = 200  # for the flush and the next message of a producer with one in flight (busy_polling.py)
    keep_cpus_awake: bool = True  # while messages are sent and received (host/idle_states.py)


class TlsMode(Enum):
    """Which protocols an accepted connection may speak."""

    DISABLED = "disabled"  # no TLS
    PERMISSIVE = "permissive"  # plain or TLS
    ENFORCING = "enforcing"  # TLS only


class ClientAuth(Enum):
    """Whether clients are asked for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS on accepted connections."""

    mode: TlsMode = TlsMode.PERMISSIVE  # which protocols clients may use: plain, TLS or both
    config_file: Path = Path("/etc/rocketmq/tls.properties")  # more of these settings, if the file exists
    test_mode: bool | None = None  # use a self-signed certificate made at start; default: if cert_path is not set
    cert_path: Path | None = None  # PEM, a chain
    key_path: Path | None = None  # PEM
    key_password: str | None = None  # of the encrypted private key
    need_client_auth: ClientAuth = ClientAuth.NONE  # whether clients are asked for a certificate, and need one
    auth_client: bool | None = None  # whether client certificates are verified; default: if trust_cert_path is set
    trust_cert_path: Path | None = None  # PEM, the authorities for client certificates; default: the system's

    @property
    def verifies_clients(self) -> bool:
        """Return whether the certificates that clients present are verified."""
        return self.trust_cert_path is not None if self.auth_client is None else self.auth_client


class OutboundTlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS on outbound connections, to name servers."""

    enable: bool | None = None  # default: the value of use_tls
    use_tls: bool | None = None  # the same setting under broker.conf's name; default: true in enforcing mode
    cert_path: Path | None = None  # our certificate for servers that ask for one; PEM, a chain
    key_path: Path | None = None  # PEM
    key_password: str | None = None  # of the encrypted private key
    auth_server: bool | None = None  # whether the server's certificate is verified; default: if trust_cert_path is set
    trust_cert_path: Path | None = None  # PEM, the authorities for server certificates; default: the system's

    def is_on(self, mode: TlsMode) -> bool:
        """Return whether outbound connections use TLS in a process whose server mode is `mode`."""
        wanted = self.use_tls if self.enable is None else self.enable
        return mode is TlsMode.ENFORCING if wanted is None else wanted

    @property
    def verifies_servers(self) -> bool:
        """Return whether the certificates of servers are verified."""
        return self.trust_cert_path is not None if self.auth_server is None else self.auth_server
