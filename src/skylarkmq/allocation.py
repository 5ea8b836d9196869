"""Rules by which the members of a consumer group share the queues, for the option `allocation`.

    from skylarkmq.allocation import consistent_hash

    mq.consumer("billing", handler=handle, allocation=consistent_hash())

A rule is a callable `(queues, members, own_id) -> queues`. All members of a group need the same rule.
"""

from skylarkmq.clients.sdk.consuming.allocation import (
    Allocation,
    averagely,
    by_machine_room,
    consistent_hash,
    fixed,
    in_turn,
    nearby,
)

__all__ = ["Allocation", "averagely", "by_machine_room", "consistent_hash", "fixed", "in_turn", "nearby"]
