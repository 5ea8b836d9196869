"""Namespaces of RocketMQ's clients: prefixes of the names of topics and groups.

    Orders           <->  team-a%Orders
    %RETRY%billing   <->  %RETRY%team-a%billing

An application with `namespace="team-a"` uses the short names; brokers and `Admin` use the long names. Names that
brokers and RocketMQ reserve have no prefix. Source: docs/reference/wire.md, "Names".
"""

from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.errors import InvalidArgument, checking_argument
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
        """Return the name that brokers use. A name that has the prefix already is returned as it is."""
        try:
            prefix, bare = _split(name)
        except (AttributeError, TypeError) as error:
            raise InvalidArgument(f"a name must be a str, not a {type(name).__name__}") from error
        if not bare or bare.startswith(self._front) or name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            return name
        return f"{prefix}{self._front}{bare}"

    def strip(self, name: str) -> str:
        """Return the name that the application uses."""
        prefix, bare = _split(name)
        return f"{prefix}{bare.removeprefix(self._front)}"

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue with the topic name that brokers use."""
        return msgspec.structs.replace(queue, topic=self.wrap(queue.topic)) if self.name else queue

    def strip_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue with the topic name that the application uses."""
        return msgspec.structs.replace(queue, topic=self.strip(queue.topic)) if self.name else queue


NO_NAMESPACE: Final = Namespace()


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
