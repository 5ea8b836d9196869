"""MessageQueue: the identity of one queue. In maps by queue the key is a MessageQueue, as a JSON object.

The field order is the sort order: topic, broker name, queue id. All members of a consumer group sort their queues in
this order before they assign them, and must agree on it. Source: docs/reference/wire.md, "JSON bodies".
"""

from collections.abc import Mapping
from typing import Any, Self

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Self:
        """Return the queue in the members of a JSON object. Raises ValueError if a member has the wrong type."""
        return msgspec.convert(members, cls, strict=False)

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
