"""MessageQueue: the name of one queue, wherever one is named; in maps by queue it is the key, as an object.

The field order is the sort order: topic, broker name, queue id. All members of a consumer group sort their queues so
before they share them out, and have to agree. Source: docs/formats.md, "JSON bodies".
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
        """From the members of a JSON object; ValueError if they are of the wrong type."""
        return msgspec.convert(members, cls, strict=False)

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
