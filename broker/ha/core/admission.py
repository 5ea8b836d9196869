"""Which nodes the leader takes for followers of its group, and where their data begin (rule 7)."""

from collections.abc import Set as AbstractSet

from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.local import Local
from skylarkmq.broker.ha.core.messages import Hello
from skylarkmq.broker.ha.core.record import GroupRecord


def foreign(hello: Hello, me: Identity, record: GroupRecord, local: Local, owners: AbstractSet[str]) -> str | None:
    """Return why a node is not taken for a follower; None if it is. The epoch of a foreign node is of no interest.

    `owners`: the nodes that are linked with the same store id.
    """
    store_id = hello.store_id
    if hello.group != me.group:
        return f"this is group {me.group}, not {hello.group}"
    if hello.node == me.node or store_id == local.store_id:
        return f"node {me.node} with store {local.store_id} leads: names and stores must differ"
    members = {node for node, member in record.members.items() if member.store_id == store_id}
    if others := sorted((members | owners) - {hello.node}):
        return f"store {store_id} belongs to {others[0]}: a store cannot be copied with its haState"
    if hello.format < record.format:
        return f"format {record.format} is in use, this node reads up to {hello.format}"
    if len({local.epochs.founding, hello.epochs.founding} - {None}) > 1:
        reason = f"the log begins with another founding of group {me.group} than the leader's"
        lost = "if the leader lost its disk, let a node with the messages lead"
        return f"{reason}: {lost}; otherwise start with an empty directory"
    return None


def start_of_data(hello: Hello, local: Local) -> int | None:
    """Return where data for a follower begin; None if nothing of its log is of use."""
    if hello.start == hello.end:
        return max(local.start, hello.end) if hello.end <= local.written else local.start
    common = local.epochs.common_end(local.written, hello.epochs, hello.end)
    return None if common is None or common < local.start else common
