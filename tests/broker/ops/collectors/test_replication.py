"""Metrics of replication."""

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ha.status import (
    COMMIT_BOUNDS_S,
    CopyState,
    LeaderStatus,
    MemberStatus,
    ReplicationStatus,
    Role,
)
from skylarkmq.broker.ops.catalogue import CATALOGUE
from skylarkmq.broker.ops.collectors.replication import ReplicationCollector
from skylarkmq.broker.ops.steps import Value


def values_of(status: ReplicationStatus | None) -> dict[tuple[str, ...], float | Histogram]:
    """Return the values by short name and labels. Each has a row with that number of labels."""
    values = [value for value in ReplicationCollector(lambda: status)() if isinstance(value, Value)]
    assert all(len(CATALOGUE[value.name].labels) == len(value.labels) for value in values)
    found = {(value.name.removeprefix("skylark_replication_"), *value.labels): value.value for value in values}
    assert len(found) == len(values), "each series once"
    return found


def member(name: str, state: CopyState, lag_bytes: int, lag_ms: int = 0) -> MemberStatus:
    return MemberStatus(name=name, address="", state=state, acked=0, lag_bytes=lag_bytes, lag_ms=lag_ms)


def test_a_node_without_replication_has_no_values() -> None:
    """So no alert of replication concerns it."""
    assert values_of(None) == {}


def test_a_leader_exports_its_copies() -> None:
    """Epoch, size of the set, lag of each copy, refusals by reason, commit latency."""
    took = Histogram(COMMIT_BOUNDS_S)
    status = ReplicationStatus(
        role=Role.LEADER,
        end=1_000,
        committed=900,
        epoch=7,
        min_in_sync=2,
        in_sync=2,
        members=(member("n2", CopyState.IN_SYNC, 100, 2_500), member("n3", CopyState.DISCONNECTED, 1_000, 60_000)),
        refused={"group": 3},
        blocked="1 of 2 copies",
        commit_s=took,
    )
    assert values_of(status) == {
        ("role", "leader"): 1,
        ("role", "follower"): 0,
        ("epoch",): 7,
        ("blocked",): 1,
        ("refused_total", "group"): 3,
        ("in_sync",): 2,
        ("min_in_sync",): 2,
        ("uncommitted_bytes",): 100,
        ("commit_seconds",): took,
        ("copy_in_sync", "n2"): 1,
        ("copy_connected", "n2"): 1,
        ("copy_lag_bytes", "n2"): 100,
        ("copy_lag_seconds", "n2"): 2.5,
        ("copy_in_sync", "n3"): 0,
        ("copy_connected", "n3"): 0,
        ("copy_lag_bytes", "n3"): 1_000,
        ("copy_lag_seconds", "n3"): 60,
    }


def test_a_follower_exports_its_connection() -> None:
    """It does not know the set."""
    leader = LeaderStatus(address="m:10912", is_connected=False)
    status = ReplicationStatus(role=Role.FOLLOWER, end=5, committed=5, epoch=2, leader=leader)
    assert values_of(status) == {
        ("role", "leader"): 0,
        ("role", "follower"): 1,
        ("epoch",): 2,
        ("blocked",): 0,
        ("leader_connected",): 0,
    }


def test_copies_of_one_name_are_one_series() -> None:
    """Classic slaves on one host have one name: the worst counts."""
    best, worst = member("h", CopyState.IN_SYNC, 5), member("h", CopyState.BEHIND, 900)
    for members in ((best, worst), (worst, best)):
        status = ReplicationStatus(role=Role.LEADER, end=9, committed=9, members=members)
        values = values_of(status)
        assert values["copy_lag_bytes", "h"] == 900
        assert values["copy_in_sync", "h"] == 0
