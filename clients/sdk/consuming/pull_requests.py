"""The pull requests of one queue, as bytes.

A consumer that keeps up pulls every few messages. Its requests differ only in two offsets and the request number. So
the JSON header is a template with placeholders for these three: filling it costs a tenth of encoding the header, and a
test compares it with the typed header. Brokers that support it get a header in MessagePack instead
(clients/sdk/connection/msgpack_requests.py). Source: docs/reference/wire.md, "Pull".
"""

from collections.abc import Mapping
from typing import Final

from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.msgpack_requests import PackedPulls
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import JSON, MSGPACK, RemotingCommand
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import encode_header

_OFFSET: Final = 9_000_000_000_000_000_001
_COMMIT_OFFSET: Final = 9_000_000_000_000_000_002
_PLACES: Final = {b"queueOffset": _OFFSET, b"commitOffset": _COMMIT_OFFSET}


class PullRequests:
    """The pull requests of a group for one queue. `with_subscription`: the request carries the subscription, so the
    broker does not need the one of the heartbeat."""

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        subscription: SubscriptionData,
        settings: ConsumerSettings,
        *,
        with_subscription: bool,
    ) -> None:
        self.queue = queue
        self._group = group
        self._subscription = subscription
        self._settings = settings
        self._with_subscription = with_subscription
        self._committing = with_places(self.header(_OFFSET, _COMMIT_OFFSET), _PLACES)
        self._reading = with_places(self.header(_OFFSET, None), _PLACES)
        self._packed_committing = PackedPulls(self.header(0, 0))
        self._packed_reading = PackedPulls(self.header(0, None))

    def __repr__(self) -> str:
        return f"<PullRequests {self.queue}>"

    @property
    def timeout_s(self) -> float:
        """How long a response may take, in seconds."""
        return self._settings.pull_timeout_s

    def frame(self, offset: int, commit_offset: int | None, opaque: int, dialect: int = JSON) -> bytes:
        """Return the request for messages from `offset` on, in JSON or MSGPACK. The pull also commits `commit_offset`,
        unless it is None."""
        if dialect == MSGPACK:
            packed = self._packed_reading if commit_offset is None else self._packed_committing
            return packed.frame(offset, commit_offset or 0, opaque)
        if commit_offset is None:
            return encode_frame(JSON, self._reading % (offset, opaque))
        return encode_frame(JSON, self._committing % (offset, commit_offset, opaque))

    def header(self, offset: int, commit_offset: int | None) -> PullMessageHeader:
        """Return the header of the same request."""
        settings = self._settings
        sys_flag = PullSysFlag.SUSPEND
        sys_flag |= PullSysFlag.SUBSCRIPTION if self._with_subscription else 0
        sys_flag |= 0 if commit_offset is None else PullSysFlag.COMMIT_OFFSET
        return PullMessageHeader(
            consumer_group=self._group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=settings.pull_batch,
            sys_flag=sys_flag,
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=int(settings.suspend_s * 1000),
            sub_version=self._subscription.sub_version,
            subscription=self._subscription.sub_string if self._with_subscription else None,
            expression_type=self._subscription.expression_type,
            max_msg_bytes=settings.pull_bytes,
            bname=self.queue.broker_name,
        )


def with_places(header: PullMessageHeader, places: Mapping[bytes, int]) -> bytes:
    """Return the encoded header as a %-template: the opaque, and each named field that holds this number, become `%d`.

    The placeholders are in the order of the fields. A quote before a name cannot be part of a value: JSON escapes it.
    """
    text = encode_header(RemotingCommand.request(RequestCode.PULL_MESSAGE, header)).replace(b"%", b"%%")
    for name, number in places.items():
        text = text.replace(b'"%b":"%d"' % (name, number), b'"%b":"%%d"' % name)
    return text.replace(b'"opaque":0,', b'"opaque":%d,')
