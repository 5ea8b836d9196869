"""Namespaces of RocketMQ's clients: names of topics and groups with what they belong to in front.

    Orders           <->  team-a%Orders
    %RETRY%billing   <->  %RETRY%team-a%billing

An application with `namespace="team-a"` uses the short names; brokers know the long ones, and so does `Admin`. Names
that brokers and RocketMQ reserve stay as they are. Source: docs/formats.md, "Names".
"""

from typing import Final

import msgspec

from skylarkmq.clients.errors import checking_argument
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, SystemTopic
from skylarkmq.protocol.message import check_topic_name

SEPARATOR: Final = "%"
_RESERVED: Final = frozenset(
    value for name, value in vars(SystemTopic).items() if name.isupper() and name != "REPLY_SUFFIX"
)
_RESERVED_PREFIXES: Final = (SystemTopic.SYSTEM_PREFIX, SYSTEM_GROUP_PREFIX)
_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)


class Namespace:
    """A namespace. The empty one, whose `name` is "", leaves all names as they are. InvalidArgument for a bad name."""

    def __init__(self, name: str = "") -> None:
        if name:
            with checking_argument("namespace"):
                check_topic_name(name)
        self.name = name
        self._front = f"{name}{SEPARATOR}" if name else ""

    def __repr__(self) -> str:
        return f"<Namespace {self.name or 'none'}>"

    def wrap(self, name: str) -> str:
        """The name as brokers know it; one that is so already stays."""
        prefix, bare = _split(name)
        if not bare or bare.startswith(self._front) or name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            return name
        return f"{prefix}{self._front}{bare}"

    def strip(self, name: str) -> str:
        """The name as the application knows it."""
        prefix, bare = _split(name)
        return f"{prefix}{bare.removeprefix(self._front)}"

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        return msgspec.structs.replace(queue, topic=self.wrap(queue.topic)) if self.name else queue

    def strip_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the application knows it."""
        return msgspec.structs.replace(queue, topic=self.strip(queue.topic)) if self.name else queue


NO_NAMESPACE: Final = Namespace()


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
