"""Metrics of replication: role, epoch, copies and their lag, refused connections, commit latency."""

from collections.abc import Callable, Iterable
from typing import Final

from skylarkmq.broker.ha.status import CopyState, MemberStatus, ReplicationStatus, Role
from skylarkmq.broker.ops.steps import Steps, Value

_BEST_FIRST: Final = tuple(CopyState)


class ReplicationCollector:
    """Metrics of one node. `status` returns None without replication; there are no values then."""

    def __init__(self, status: Callable[[], ReplicationStatus | None]) -> None:
        self._status = status

    def __repr__(self) -> str:
        return f"<ReplicationCollector {self._status()!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        now = self._status()
        if now is None:
            return
        for role in Role:
            yield Value("skylark_replication_role", (role.value,), int(now.role is role))
        yield Value("skylark_replication_epoch", (), now.epoch)
        yield Value("skylark_replication_blocked", (), int(bool(now.blocked)))
        for reason, count in now.refused.items():
            yield Value("skylark_replication_refused_total", (reason,), count)
        if now.leader is not None:
            yield Value("skylark_replication_leader_connected", (), int(now.leader.is_connected))
            return
        yield Value("skylark_replication_in_sync", (), now.in_sync)
        yield Value("skylark_replication_min_in_sync", (), now.min_in_sync)
        yield Value("skylark_replication_uncommitted_bytes", (), max(now.end - now.committed, 0))
        if now.commit_s is not None:
            yield Value("skylark_replication_commit_seconds", (), now.commit_s)
        for member in worst_by_name(now.members):
            copy = (member.name,)
            yield Value("skylark_replication_copy_in_sync", copy, int(member.state is CopyState.IN_SYNC))
            yield Value("skylark_replication_copy_connected", copy, int(member.state is not CopyState.DISCONNECTED))
            yield Value("skylark_replication_copy_lag_bytes", copy, member.lag_bytes)
            yield Value("skylark_replication_copy_lag_seconds", copy, member.lag_ms / 1000)


def worst_by_name(members: Iterable[MemberStatus]) -> list[MemberStatus]:
    """Return one member for each name, the worst: classic slaves on one host have the same name."""
    ordered = sorted(members, key=lambda member: (_BEST_FIRST.index(member.state), member.lag_bytes))
    return list({member.name: member for member in ordered}.values())
