"""Rights to messages that a request names by their place in the log only.

Four requests name a message so: CONSUMER_SEND_MSG_BACK (36), END_TRANSACTION (37), VIEW_MESSAGE_BY_ID (33) and, by the
administrator only, RESUME_CHECK_HALF_MESSAGE (323). RocketMQ checks the group or the topic that the request names, and
never that of the message. So every account could copy any message to its own retry topic and read it there, or decide
the transactions of others. *Ours*: 36 also needs SUB on the topic of the message, 37 PUB, 33 the right to read it. A
message without that right counts as absent, so the response does not reveal its topic.

Source: docs/compatibility.md, "Access control of RocketMQ 4.9", "Access control of RocketMQ 5.3".
"""

from typing import Protocol

from skylarkmq.broker.access.requirements import Action
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.command import RemotingCommand


class MessageRights(Protocol):
    """The rights to the topics of stored messages."""

    def permits(self, connection: Connection, command: RemotingCommand, topic: str, action: Action) -> bool:
        """Return whether the caller of an admitted request may do `action` with a message of `topic`."""


class AllMessages:
    """Permits everything: there is no access control."""

    def permits(self, _connection: Connection, _command: RemotingCommand, _topic: str, _action: Action) -> bool:
        """Return True."""
        return True
