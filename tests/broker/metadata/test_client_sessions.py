"""Client sessions: the channel is the identity; which changes must be notified to a group, and which not."""

from typing import cast

import pytest

from skylarkmq.broker.metadata.client_sessions import EXPIRY_MS, ClientMember, ClientSessions
from skylarkmq.broker.remoting.request_source import ClientChannel
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.filters.tag import subscribe
from tests.harness.broker_parts import GROUP, TOPIC, consumer


class Named:
    """A stand-in for a channel: sessions use its identity, and its peer for the log."""

    def __init__(self, peer: str) -> None:
        self.peer = peer


def channel(name: str) -> ClientChannel:
    return cast(ClientChannel, Named(name))


A, B = channel("a"), channel("b")


def member(at: ClientChannel, client_id: str = "c1", seen_ms: int = 0) -> ClientMember:
    return ClientMember(at, client_id, "JAVA", 479, seen_ms)


@pytest.fixture
def sessions() -> ClientSessions:
    return ClientSessions()


def ids(sessions: ClientSessions, group: str = GROUP) -> list[str] | None:
    found = sessions.consumer_group(group)
    return None if found is None else found.client_ids()


def topics(sessions: ClientSessions) -> dict[str, int]:
    group = sessions.consumer_group(GROUP)
    assert group is not None
    return {topic: subscription.data.sub_version for topic, subscription in group.subscriptions.items()}


def test_only_the_first_heartbeat_of_a_connection_is_a_change(sessions: ClientSessions) -> None:
    """The second has no change; the same client id on another channel is another member."""
    assert sessions.join_consumers(consumer(), member(A))
    assert not sessions.join_consumers(consumer(), member(A))
    assert sessions.join_consumers(consumer(), member(B))
    assert ids(sessions) == ["c1", "c1"]


def test_another_client_id_on_a_connection_replaces_the_previous_one(sessions: ClientSessions) -> None:
    """One channel is one member."""
    sessions.join_consumers(consumer(), member(A))
    sessions.join_consumers(consumer(), member(A, "c2"))
    assert ids(sessions) == ["c2"]


@pytest.mark.parametrize(
    ("then", "is_change", "known"),
    [
        ([subscribe("t", "*", 1)], False, {"t": 1}),
        ([subscribe("t", "A", 2)], False, {"t": 2}),
        ([subscribe("t", "A", 0)], False, {"t": 1}),
        ([subscribe("t", "*", 1), subscribe("u", "*", 1)], True, {"t": 1, "u": 1}),
        ([subscribe("u", "*", 1)], True, {"u": 1}),
    ],
)
def test_a_groups_subscriptions_follow_its_heartbeats(
    sessions: ClientSessions, then: list[SubscriptionData], is_change: bool, known: dict[str, int]
) -> None:
    """New and missing topics are a change; a newer version replaces without one; an older one has no effect."""
    sessions.join_consumers(consumer(subscribe("t", "*", 1)), member(A))
    assert sessions.join_consumers(consumer(*then), member(A)) is is_change
    assert topics(sessions) == known


def test_a_subscription_carries_its_test(sessions: ClientSessions) -> None:
    """A subscription to all messages needs none; tags are tested by their hashes."""
    sessions.join_consumers(consumer(subscribe("t", "*", 1), subscribe("u", "A", 1)), member(A))
    group = sessions.consumer_group(GROUP)
    assert group is not None
    assert group.subscriptions["t"].matches is None
    matches = group.subscriptions["u"].matches
    assert matches is not None
    assert (matches(65), matches(66)) == (True, False)


def test_a_group_ends_with_its_last_member(sessions: ClientSessions) -> None:
    """Leaving returns the group so that the others can be notified; a group without members is unknown."""
    sessions.join_consumers(consumer(), member(A))
    sessions.join_consumers(consumer(), member(B, "c2"))
    group = sessions.leave_consumers(GROUP, A)
    assert group is not None
    assert list(group.members) == [B]
    assert sessions.leave_consumers(GROUP, A) is None
    assert ids(sessions) == ["c2"]
    assert sessions.leave_consumers(GROUP, B) is group
    assert ids(sessions) is None
    assert sessions.leave_consumers("unknown", A) is None


def test_a_closed_connection_leaves_everything(sessions: ClientSessions) -> None:
    """Its producer groups too; the consumer groups are returned."""
    sessions.join_consumers(consumer(group="g"), member(A))
    sessions.join_consumers(consumer(group="h"), member(A))
    sessions.join_consumers(consumer(group="h"), member(B))
    sessions.join_producers("p", member(A))
    sessions.join_producers("p", member(B))
    assert {group.name for group in sessions.closed(A)} == {"g", "h"}
    assert sessions.closed(A) == []
    assert list(sessions.producers("p")) == [B]
    assert (ids(sessions, "g"), ids(sessions, "h")) == (None, ["c1"])
    sessions.closed(B)
    assert sessions.statistics() == type(sessions.statistics())(0, 0, 0, 0)


def test_a_client_expires_after_120_s_without_a_heartbeat(sessions: ClientSessions) -> None:
    """In any of its groups, as consumer or producer; a heartbeat restarts the time."""
    sessions.join_consumers(consumer(), member(A, seen_ms=0))
    sessions.join_producers("p", member(B, seen_ms=0))
    assert sessions.expired(EXPIRY_MS) == []
    assert set(sessions.expired(EXPIRY_MS + 1)) == {A, B}
    sessions.join_consumers(consumer(), member(A, seen_ms=50_000))
    sessions.join_producers("p", member(B, seen_ms=50_000))
    assert sessions.expired(EXPIRY_MS + 50_000) == []


def test_a_heartbeat_without_subscriptions_keeps_the_known_ones(sessions: ClientSessions) -> None:
    """It only refreshes the member; from a new channel it adds a member."""
    sessions.join_consumers(consumer(), member(A, seen_ms=0), fingerprint=7)
    assert not sessions.refresh_consumers(consumer(), member(A, seen_ms=9))
    assert sessions.refresh_consumers(consumer(), member(B, seen_ms=9))
    assert topics(sessions) == {TOPIC: 1}
    assert sessions.expired(EXPIRY_MS + 5) == []


def test_a_fingerprint_is_compared_with_that_of_the_group(sessions: ClientSessions) -> None:
    """Unknown is equal, unless the subscriptions were omitted: then the client must send them."""
    assert not sessions.is_other_fingerprint(GROUP, 7, without_subscriptions=False)
    assert sessions.is_other_fingerprint(GROUP, 7, without_subscriptions=True)
    sessions.join_consumers(consumer(), member(A), fingerprint=7)
    assert not sessions.is_other_fingerprint(GROUP, 7, without_subscriptions=True)
    assert sessions.is_other_fingerprint(GROUP, 8, without_subscriptions=False)


def test_a_producer_is_found_by_its_client_id(sessions: ClientSessions) -> None:
    """Of two connections with one id the latest counts; a new id replaces the previous one."""
    assert sessions.producer("c1") is None
    sessions.join_producers("g", member(A))
    sessions.join_producers("h", member(A))
    sessions.join_producers("g", member(B))
    assert sessions.producer("c1") is B
    sessions.leave_producers("g", B)
    assert sessions.producer("c1") is A
    sessions.leave_producers("g", A)
    assert sessions.producer("c1") is A
    sessions.join_producers("h", member(A, "c2"))
    assert (sessions.producer("c1"), sessions.producer("c2")) == (None, A)
    sessions.closed(A)
    assert sessions.producer("c2") is None


def test_of_two_members_with_one_client_id_the_last_to_join_is_found(sessions: ClientSessions) -> None:
    """As long as it is a member."""
    for at in (A, B):
        sessions.join_consumers(consumer(), member(at))
    group = sessions.consumer_group(GROUP)
    assert group is not None
    assert group.member("c2") is None
    for last, other in ((B, A), (A, None)):
        found = group.member("c1")
        assert found is not None
        assert found.channel is last
        sessions.closed(last)
        assert list(group.members) == ([] if other is None else [other])


def test_members_with_different_subscriptions_are_logged(
    sessions: ClientSessions, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names two members and the difference, once a minute and group; equal members cause none."""

    def heartbeat(at: ClientChannel, client_id: str, expression: str, seen_ms: int) -> None:
        subscriptions = subscribe("t", expression, 1), subscribe("u", "*", 1)
        sessions.join_consumers(consumer(*subscriptions), member(at, client_id, seen_ms))

    heartbeat(A, "c1", "*", 0)
    heartbeat(B, "c2", "*", 0)
    heartbeat(A, "c1", "x", 30_000)
    heartbeat(B, "c2", "*", 60_000)
    assert [record.getMessage() for record in caplog.records] == [
        "members of a group have different subscriptions group=G client=c1 only=t:x other=c2 only=t:*"
    ]
    heartbeat(B, "c2", "*", 90_000)
    assert "client=c2 only=t:* other=c1 only=t:x" in caplog.records[-1].getMessage()
    heartbeat(B, "c2", "x", 200_000)
    assert len(caplog.records) == 2


def test_the_list_of_client_ids_is_cached(sessions: ClientSessions) -> None:
    """It is encoded again when a member joins, leaves, or changes its client id."""

    def encoded() -> bytes:
        group = sessions.consumer_group(GROUP)
        assert group is not None
        assert group.encoded_ids() is group.encoded_ids()
        return group.encoded_ids()

    sessions.join_consumers(consumer(), member(A))
    assert encoded() == b'{"consumerIdList":["c1"]}'
    sessions.join_consumers(consumer(), member(B, "c2"))
    assert encoded() == b'{"consumerIdList":["c1","c2"]}'
    sessions.join_consumers(consumer(), member(A, "c3"))
    assert encoded() == b'{"consumerIdList":["c3","c2"]}'
    sessions.leave_consumers(GROUP, A)
    assert encoded() == b'{"consumerIdList":["c2"]}'
