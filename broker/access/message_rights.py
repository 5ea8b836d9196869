"""Rights to messages that a request names by their place in the log only.

Five requests name a message so. RocketMQ checks the group or the topic that the request names, and never the message's.
So every account could copy any message to its own retry topic and read it there, or decide the transactions of others.
*Ours*: the caller also needs a right to the topic of the message. A message without that right counts as absent, so the
response does not reveal its topic.

    CONSUMER_SEND_MSG_BACK (36)     SUB
    END_TRANSACTION (37)            PUB
    VIEW_MESSAGE_BY_ID (33)         GET
    CONSUME_MESSAGE_DIRECTLY (309)  SUB: a member of the caller's group would receive it
    RESUME_CHECK_HALF_MESSAGE (323) UPDATE

A heartbeat (34) makes its sender a producer of any group, and a producer gets checks with the half messages of the
group. *Ours*: only producers that had PUB on the topic of a half message by the account of their heartbeat.

Source: docs/reference/compatibility.md, "Access control of RocketMQ 4.9", "Access control of RocketMQ 5.3".
"""

from collections.abc import Callable
from typing import Protocol

from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.record import Record, parse

Rights = Callable[[str, Action], bool]
"""`(topic, action)`: whether one account may do `action` with a message of `topic`, by the current rules."""


class MessageRights(Protocol):
    """The rights to the topics of stored messages."""

    def rights_of(self, source: RequestSource, command: RemotingCommand) -> Rights:
        """Return the rights of the caller of an admitted request. They may be kept longer than the request."""


class AllMessages:
    """Permits everything: there is no access control."""

    def rights_of(self, _source: RequestSource, _command: RemotingCommand) -> Rights:
        """Return all rights."""
        return all_rights


def all_rights(_topic: str, _action: Action) -> bool:
    """Return True."""
    return True


def stored_topic(record: bytes) -> str:
    """Return the topic of a record; empty if it is damaged."""
    parsed = parse(memoryview(record), check_body=False)
    return parsed.topic if isinstance(parsed, Record) else ""
