"""Times of the core. They decide when a node tries something, and never what is committed."""

import msgspec


class Timings(msgspec.Struct, frozen=True):
    """All in seconds.

    `beat_s`: between two BEATs. `silent_s`: a follower closes a link on which it heard nothing for this long.
    `behind_s`: a store that did not keep up for this long is removed from the set.
    `keep_up_s`: a store keeps up for this long before it is added; each removal doubles it, up to `longest_wait_s`.
    `lost_s`: a leader stops if neither its sign of life was renewed nor all of its set was heard for this long.
    `read_s`: between two reads of the record. `connect_s`: between two attempts to connect. `gone_s`: the leader is
    gone for this long before a campaign begins, and `rank_s` longer for each member with a smaller name; campaigns
    without success double the time. `stuck_s`: a leader that commits nothing for this long resigns. `mark_s`: between
    two writes of the committed mark.
    """

    beat_s: float = 0.5
    silent_s: float = 2.0
    behind_s: float = 1.5
    keep_up_s: float = 5.0
    longest_wait_s: float = 30.0
    lost_s: float = 3.0
    read_s: float = 2.0
    connect_s: float = 0.5
    gone_s: float = 0.2
    rank_s: float = 0.1
    stuck_s: float = 2.0
    mark_s: float = 1.0
