"""Limits on peers."""

import msgspec

from protocol.frame import MAX_FRAME_BYTES


class RemotingConfig(msgspec.Struct, frozen=True):
    """Limits on peers. Bytes and seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES  # RocketMQ's frameMaxLength
    max_connections: int = 16_384  # descriptors are finite; RocketMQ has no limit
    max_idle_s: float = 120.0  # serverChannelMaxIdleTimeSeconds: silence in both directions
    peer_backlog_bytes: int = 4 * 1024 * 1024  # one slow reader
    total_backlog_bytes: int = 64 * 1024 * 1024  # all slow readers together
