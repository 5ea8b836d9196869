"""Locks of queues, which a member of an orderly group asks for (41) and gives back (42).

Source: docs/formats.md, "JSON bodies".
"""

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.message_queue import MessageQueue


class LockRequest(Body):
    """Requests 41 and 42: these queues, for this client."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockedQueues(Body):
    """Answer to 41: those of the queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")
