"""Which node this is."""

from collections.abc import Callable

import msgspec

from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.core.timings import Timings


class Identity(msgspec.Struct, frozen=True):
    """`group`: the broker name. `node`: a name that is unique in it. `incarnation`: text that no other process has.
    `segment_bytes`: for HELLO.

    `has_static_leader`: an operator decides which node leads (`haStore=none`), so no other node begins a term.

    `founds` makes the record of a new group from the id of this node's store; None if this node may not found one.
    """

    group: str
    node: str
    incarnation: str
    timings: Timings = Timings()
    founds: Callable[[str], GroupRecord] | None = None
    segment_bytes: int = 0
    has_static_leader: bool = False
