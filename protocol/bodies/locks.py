"""Queue locks of an orderly consumer group: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

Source: docs/reference/wire.md, "JSON bodies".
"""

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.message_queue import MessageQueue


class LockRequest(Body):
    """LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): lock or unlock these queues for this client."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockedQueues(Body):
    """Response to LOCK_BATCH_MQ (41): the requested queues that are now locked for the client."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")
