"""The pulls of one queue, as bytes.

A consumer that keeps up pulls for every few messages, and all that its pulls say apart from two offsets and their
number is the same each time. So the JSON header is a template with places for those; filling it costs a tenth of
encoding the header anew, and a test holds it to the typed header. For brokers that know it there is another in
MessagePack (packed_requests.py). Source: docs/formats.md, "Pull".
"""

from collections.abc import Mapping
from typing import Final

from skylarkmq.clients.connection.msgpack_requests import PackedPulls
from skylarkmq.clients.settings import ConsumerSettings
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
    """What a group's pulls of one queue are; `with_subscription`: the broker shall not look among the heartbeats."""

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
        """How long an answer may take."""
        return self._settings.pull_timeout_s

    def frame(self, offset: int, commit_offset: int | None, opaque: int, dialect: int = JSON) -> bytes:
        """The request, in JSON or MSGPACK, for what begins at `offset`; `commit_offset` None: nothing is committed by
        the way."""
        if dialect == MSGPACK:
            packed = self._packed_reading if commit_offset is None else self._packed_committing
            return packed.frame(offset, commit_offset or 0, opaque)
        if commit_offset is None:
            return encode_frame(JSON, self._reading % (offset, opaque))
        return encode_frame(JSON, self._committing % (offset, commit_offset, opaque))

    def header(self, offset: int, commit_offset: int | None) -> PullMessageHeader:
        """The same request's header."""
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
    """The encoded header with a %-place for the opaque and for each field named, which holds that number.

    Places follow each other as fields do in the header. A quote before a name cannot be of a text, which escapes it.
    """
    text = encode_header(RemotingCommand.request(RequestCode.PULL_MESSAGE, header)).replace(b"%", b"%%")
    for name, number in places.items():
        text = text.replace(b'"%b":"%d"' % (name, number), b'"%b":"%%d"' % name)
    return text.replace(b'"opaque":0,', b'"opaque":%d,')
