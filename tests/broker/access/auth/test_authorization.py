"""Authorization: which entry of the policies decides, RocketMQ's remarks, and the cache of decisions."""

import itertools

import pytest

from skylarkmq.broker.access import decision_cache
from skylarkmq.broker.access.auth import authorization
from skylarkmq.broker.access.auth.authorization import Authorizer, refused
from skylarkmq.broker.access.auth.policies import (
    Acls,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    acl_of,
)
from skylarkmq.broker.access.auth.users import User, Users
from skylarkmq.broker.access.requests.resources import Action, Resource
from skylarkmq.broker.access.requests.uses import Use
from skylarkmq.protocol.bodies.auth import PolicyEntryInfo, PolicyInfo

HOST = "10.1.2.3"
PUB = Use(Resource.topic("orders"), (Action.PUB,))
UNMATCHED = "no matched policies."
DENIED = "the decision is deny."


def entry(text: str) -> PolicyEntry:
    """Return the entry in a text such as `Topic:T Pub,Sub Allow 10.0.0.0/8`."""
    key, actions, decision, *sources = text.split()
    resource = Resource.parse(key)
    assert resource is not None
    names = tuple(Action(action) for action in actions.split(","))
    return PolicyEntry(resource, names, tuple(sources), Decision(decision))


def custom(*entries: str) -> tuple[Policy, ...]:
    return (Policy(PolicyType.CUSTOM, tuple(map(entry, entries))),)


def default(*entries: str) -> tuple[Policy, ...]:
    return (Policy(PolicyType.DEFAULT, tuple(map(entry, entries))),)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], UNMATCHED),
        (["Topic:orders Pub Allow"], None),
        (["Topic:orders Sub,Pub Allow"], None),
        (["Topic:orders All Allow"], None),
        (["Topic:orders Sub Allow"], UNMATCHED),
        (["Group:orders Pub Allow"], UNMATCHED),
        (["Topic:order Pub Allow"], UNMATCHED),
        (["Topic:orders Pub Deny"], DENIED),
        (["Topic:orders Pub Allow 10.1.2.3"], None),
        (["Topic:orders Pub Allow 10.9.0.0/16 10.1.0.0/16"], None),
        (["Topic:orders Pub Allow 10.9.0.0/16"], UNMATCHED),
        (["Topic:orders Pub Deny 10.9.0.0/16", "Topic:* Pub Allow"], None),
        (["Topic:orders Sub Deny", "Topic:* Pub Allow"], None),
        (["* All Allow"], None),
    ],
)
def test_which_entries_match(entries: list[str], expected: str | None) -> None:
    """Resource, action and source address all have to match; without a match the request is refused."""
    assert refused(custom(*entries), PUB, HOST) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Topic:orders", "Topic:ord*"),
        ("Topic:orders", "Topic:orders*"),
        ("Topic:orders", "Topic:*"),
        ("Topic:orders", "*"),
        ("Topic:orde*", "Topic:o*"),
        ("Topic:o*", "Topic:*"),
        ("Topic:o*", "*"),
        ("Topic:*", "*"),
    ],
)
def test_the_more_specific_entry_decides(first: str, second: str) -> None:
    """Regardless of the order of the entries, and of which of them denies."""
    for decisions in (("Allow", "Deny"), ("Deny", "Allow")):
        texts = [f"{key} Pub {decision}" for key, decision in zip((first, second), decisions, strict=True)]
        for order in itertools.permutations(texts):
            assert refused(custom(*order), PUB, HOST) == (None if decisions[0] == "Allow" else DENIED)


def test_deny_comes_before_allow_for_the_same_resource() -> None:
    """The first policies of a subject may contain a resource twice."""
    for order in itertools.permutations(("Topic:orders Pub Allow", "Topic:orders All Deny")):
        assert refused(custom(*order), PUB, HOST) == DENIED


def test_default_entries_count_without_a_matching_custom_entry() -> None:
    """One that matches decides alone, however general it is."""
    assert refused(default("Topic:orders Pub Deny") + custom("* All Allow"), PUB, HOST) is None
    assert refused(default("Topic:orders Pub Allow") + custom("Topic:other Pub Deny"), PUB, HOST) is None
    assert refused(default("Topic:orders Pub Deny"), PUB, HOST) == DENIED


def test_one_of_the_actions_is_enough() -> None:
    """Reading offsets needs Sub or Get."""
    use = Use(Resource.topic("orders"), (Action.SUB, Action.GET))
    assert refused(custom("Topic:orders Get Allow"), use, HOST) is None
    assert refused(custom("Topic:orders Sub Allow"), use, HOST) is None
    assert refused(custom("Topic:orders Pub Allow"), use, HOST) == UNMATCHED


def authorizer_of(*users: str) -> tuple[Acls, Authorizer]:
    table = Users(User(name, "pw") for name in users)
    acls = Acls(table)
    table.load(None)
    return acls, Authorizer(acls)


def allow(acls: Acls, user: str, resource: str, decision: str = "Allow") -> None:
    info = PolicyEntryInfo(resource=resource, actions=["Pub"], decision=decision)
    acls.put(f"User:{user}", acl_of([PolicyInfo(entries=[info])]))


def test_remarks() -> None:
    """They name the user, the resource and the address."""
    acls, authorizer = authorizer_of("alice")
    missing = "User:alice has no permission to access Topic:orders from 10.1.2.3, no matched policies."
    assert authorizer.refusal("alice", 310, PUB, HOST) == missing
    allow(acls, "alice", "Topic:orders", "Deny")
    denied = "User:alice has no permission to access Topic:orders from 10.1.2.3, the decision is deny."
    assert authorizer.refusal("alice", 310, PUB, HOST) == denied


def test_changes_take_effect_at_once() -> None:
    """Cached decisions are dropped with every change."""
    acls, authorizer = authorizer_of("alice", "bob")
    assert authorizer.refusal("alice", 310, PUB, HOST) is not None
    allow(acls, "alice", "Topic:o*")
    assert authorizer.refusal("alice", 310, PUB, HOST) is None
    assert authorizer.refusal("bob", 310, PUB, HOST) is not None
    acls.delete("User:alice", PolicyType.CUSTOM, None)
    assert authorizer.refusal("alice", 310, PUB, HOST) is not None


def test_decisions_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each user, request, resource and address once."""
    acls, authorizer = authorizer_of("alice", "bob")
    allow(acls, "alice", "Topic:orders")
    decided: list[str] = []

    def counted(_acl: object, use: Use, host: str) -> None:
        decided.append(f"{use.resource.key} {host}")

    monkeypatch.setattr(authorization, "refused", counted)
    other = Use(Resource.topic("other"), (Action.PUB,))
    for _ in range(3):
        for name, code, use, host in (
            ("alice", 310, PUB, HOST),
            ("bob", 310, PUB, HOST),
            ("alice", 10, PUB, HOST),
            ("alice", 310, other, HOST),
            ("alice", 310, PUB, "::1"),
        ):
            authorizer.refusal(name, code, use, host)
    assert len(decided) == 5


@pytest.mark.parametrize("granted", [Action.PUB, Action.SUB, Action.GET, Action.UPDATE])
def test_a_cached_decision_counts_for_its_actions_only(granted: Action) -> None:
    """Requests with one code may want different actions on a resource: a heartbeat (34) of a producer needs Pub, one of
    a consumer Sub. No decision depends on the order of the requests."""
    wanted = [(action,) for action in Action] + [(Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)]
    uses = [Use(Resource.topic("orders"), actions) for actions in wanted]
    for order in (uses, uses[::-1]):
        acls, authorizer = authorizer_of("alice")
        entry = PolicyEntryInfo(resource="Topic:orders", actions=[granted.value], decision="Allow")
        acls.put("User:alice", acl_of([PolicyInfo(entries=[entry])]))
        permitted = [use.actions for use in order if authorizer.refusal("alice", 34, use, HOST) is None]
        assert permitted == [use.actions for use in order if granted in use.actions]


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full cache is cleared, and long names are not cached."""
    monkeypatch.setattr(decision_cache, "MOST_DECISIONS", 3)
    _, authorizer = authorizer_of("alice")
    sizes = []
    for number in range(5):
        authorizer.refusal("alice", 310, Use(Resource.topic(str(number)), (Action.PUB,)), HOST)
        sizes.append(repr(authorizer).rpartition("=")[2])
    authorizer.refusal("alice", 310, Use(Resource.topic("t" * 256), (Action.PUB,)), HOST)
    assert sizes == ["1>", "2>", "3>", "1>", "2>"]
    assert repr(authorizer).endswith("=2>")
