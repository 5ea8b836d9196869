"""The limit on the bytes that a topic stores: its attribute `retention.bytes`.

Sends to a topic that stores as many bytes are refused with SERVICE_NOT_AVAILABLE (14), as if the disk were full: Java
and Go producers then try another broker. RocketMQ has no such limit. Segments of the log belong to all topics, so the
broker cannot make room by deleting the topic's oldest messages; they expire like all others. Source:
docs/reference/behaviour.md, "Bytes of a topic".
"""

from collections.abc import Callable
from typing import Final

from skylarkmq.broker.access.quota_refusals import Refusals, Scope
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

ATTRIBUTE: Final = "retention.bytes"
KIND: Final = "stored_bytes"


class TopicRetention:
    """Checks the bytes of topics. `stored` returns them, None if they are not known yet."""

    def __init__(self, stored: Callable[[str], int | None], refusals: Refusals) -> None:
        self._stored = stored
        self._refusals = refusals

    def __repr__(self) -> str:
        return "<TopicRetention>"

    def check(self, topic: TopicConfig) -> None:
        """Raise RequestError if the topic stores as many bytes as its attribute permits."""
        text = topic.attributes.get(ATTRIBUTE)
        if text is None:
            return
        name, most = topic.topic_name, int(text)
        stored = self._stored(name)
        if stored is not None and stored >= most:
            self._refusals.note(Scope.TOPIC, KIND, ATTRIBUTE, most, name)
            remark = f"service not available now, topic[{name}] stores {stored} bytes, {ATTRIBUTE}={most}"
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
