"""What is set about connections: limits on peers, and TLS on those that we accept and those that we open.

RocketMQ's TLS keys are JVM properties there. None stands for a default that follows from other settings (`tls.py`).
"""

from enum import Enum
from pathlib import Path

import msgspec

from skylarkmq.protocol.frame import MAX_FRAME_BYTES


class RemotingConfig(msgspec.Struct, frozen=True):
    """Limits on peers. Bytes and seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES  # RocketMQ's frameMaxLength
    max_connections: int = 16_384  # descriptors are finite; RocketMQ has no limit
    max_idle_s: float = 120.0  # serverChannelMaxIdleTimeSeconds: silence in both directions
    peer_backlog_bytes: int = 4 * 1024 * 1024  # one slow reader
    total_backlog_bytes: int = 64 * 1024 * 1024  # all slow readers together
    unfinished_frames_bytes: int = 32 * 1024 * 1024  # all frames that have begun to come
    unfinished_frames_host_percent: int = 75  # of that for the connections of one host
    unfinished_frame_min_rate: int = 16 * 1024  # bytes/s; slower ones are closed while others wait for the memory
    unfinished_frame_slow_s: float = 5.0  # over so long
    transfer_by_copying: bool = False  # transferMsgByHeap, on in RocketMQ: files are read and written, never sent
    busy_poll_us: int = 200  # for what a lone sender waits for, and for his next message; see lookout.py
    keep_cpus_awake: bool = True  # while messages come and go; see awake_cpus.py


class TlsMode(Enum):
    """What an accepted connection may speak."""

    DISABLED = "disabled"  # no TLS
    PERMISSIVE = "permissive"  # either
    ENFORCING = "enforcing"  # nothing but TLS


class ClientAuth(Enum):
    """Whether a client is asked for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS on connections that we accept."""

    mode: TlsMode = TlsMode.PERMISSIVE
    config_file: Path = Path("/etc/rocketmq/tls.properties")  # more of these settings, if it is there
    test_mode: bool | None = None  # a certificate made at the start, signed by itself; default: without cert_path
    cert_path: Path | None = None  # PEM, a chain
    key_path: Path | None = None  # PEM
    key_password: str | None = None
    need_client_auth: ClientAuth = ClientAuth.NONE
    auth_client: bool | None = None  # whether a client's certificate is checked; default: with trust_cert_path
    trust_cert_path: Path | None = None  # PEM, who may sign clients' certificates; default: the system's authorities


class OutboundTlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS on connections that we open, to name servers."""

    enable: bool | None = None  # default: as use_tls says
    use_tls: bool | None = None  # the same, by the name that broker.conf has for it; default: in enforcing mode
    cert_path: Path | None = None  # what we show to servers that ask; PEM, a chain
    key_path: Path | None = None  # PEM
    key_password: str | None = None
    auth_server: bool | None = None  # whether the server's certificate is checked; default: with trust_cert_path
    trust_cert_path: Path | None = None  # PEM, who may sign servers' certificates; default: the system's authorities

    def is_on(self, mode: TlsMode) -> bool:
        """Whether they speak TLS, in a process that accepts connections in this mode."""
        wanted = self.use_tls if self.enable is None else self.enable
        return mode is TlsMode.ENFORCING if wanted is None else wanted
