"""The pull requests of one queue, as frames: a template with offset, number of messages and opaque to fill in."""

from typing import Final

from skylarkmq.clients.arrow.topic.options import TopicOptions
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.consuming.pull_requests import with_places
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import PullSysFlag
from skylarkmq.protocol.command import JSON
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader

_OFFSET: Final = 9_000_000_000_000_000_001
_COUNT: Final = 2_000_000_001


class PullFrames:
    """Builds the pull requests of a queue."""

    def __init__(self, options: TopicOptions, queue: MessageQueue, credentials: Credentials | None = None) -> None:
        self._options = options
        self._queue = queue
        self._credentials = credentials
        self._template = with_places(self.header(_OFFSET, _COUNT), {b"maxMsgNums": _COUNT, b"queueOffset": _OFFSET})

    def __repr__(self) -> str:
        return f"<PullFrames {self._queue}>"

    def frame(self, offset: int, count: int, opaque: int) -> bytes:
        """Return the request for up to `count` messages from `offset` on."""
        frame = encode_frame(JSON, self._template % (offset, count, opaque))
        return frame if self._credentials is None else self._credentials.signed_frame(frame)

    def header(self, offset: int, count: int) -> PullMessageHeader:
        """Return the header of the same request."""
        subscription = self._options.subscription(self._queue.topic)
        return PullMessageHeader(
            consumer_group=self._options.pull_group,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
            bname=self._queue.broker_name,
        )
