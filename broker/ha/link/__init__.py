"""The replication link between Skylark's own nodes: the shell around `broker.ha.core`.

    core.Node  ──effects──▶  Runner ──▶  Links         connections, handshake, frames, bytes of the log
               ◀──events───         ──▶  the log       write, truncate, make visible; an adapter over the store
                                    ──▶  state files   promise, committed mark, epochs
                                    ──▶  decisions     the record of the group: a file of the leader

Nothing here decides what is committed. Source: docs/decisions/0013-replication.md; docs/reference/wire.md, "Replication
link".
"""
