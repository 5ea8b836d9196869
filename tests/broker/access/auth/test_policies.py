"""Policies: RocketMQ's remarks, merging of entries, deletion, filters, and the file."""

import json

import pytest

from skylarkmq.broker.access.auth.policies import (
    MOST_ENTRIES,
    Acls,
    PolicyType,
    acl_of,
    decode_acls,
    info_of,
    policy_type_of,
    subject_of,
)
from skylarkmq.broker.access.auth.users import User, Users
from skylarkmq.broker.access.requests.resources import Resource
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

ALICE = "User:alice"


def entry(
    resource: str | None = "Topic:T", *actions: str, decision: str | None = "Allow", **rest: list[str]
) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=list(actions or ("Pub",)), decision=decision, **rest)


def policies(*entries: PolicyEntryInfo, type_: str | None = None) -> list[PolicyInfo]:
    return [PolicyInfo(type_, list(entries))]


@pytest.fixture
def acls() -> Acls:
    users = Users([User("alice", "pw"), User("bob", "pw")])
    table = Acls(users)
    users.load(None)
    table.load(None)
    return table


@pytest.mark.parametrize(
    ("refused", "remark"),
    [
        ([], "The policies is empty."),
        (policies(), "The policies is empty."),
        (policies(entry(None)), "The resource is null."),
        (policies(entry("Queue:x")), "The resource is null."),
        (policies(entry("Topic:T", "Fly")), "The actions is empty."),
        (policies(entry("Topic:T", "Pub", "ANY")), "The actions can not be Any."),
        (policies(entry(source_ips=[" "])), "The source ip is empty."),
        (policies(entry(source_ips=["10.0.0.1", "10.0.0.0/40"])), "The source ip is invalid."),
        (policies(entry(decision="Maybe")), "The decision is null or illegal."),
        (policies(entry(decision=None)), "The decision is null or illegal."),
        (policies(entry(), entry("x")), "The resource is null."),
    ],
)
def test_refused_policies(refused: list[PolicyInfo], remark: str) -> None:
    """The code is NO_PERMISSION (16)."""
    with pytest.raises(RequestError) as raised:
        acl_of(refused)
    assert (raised.value.code, raised.value.remark) == (ResponseCode.NO_PERMISSION, remark)


def test_words_are_read_without_case_and_unknown_actions_are_left_out() -> None:
    """The written form is RocketMQ's."""
    acl = acl_of(
        policies(entry("topic:T*", "pUB", "Fly", "list", decision="DENY", source_ips=["::1"]), type_="default")
    )
    assert info_of(ALICE, acl).encode() == (
        b'{"policies":[{"entries":[{"actions":["Pub","List"],"decision":"Deny","resource":"Topic:T*",'
        b'"sourceIps":["::1"]}],"policyType":"Default"}],"subject":"User:alice"}'
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("User:a:b", "User:a:b"), ("uSER:x", "User:x"), ("Role:x", None), ("", None), (None, None)]
)
def test_the_text_of_a_subject(text: str | None, expected: str | None) -> None:
    """Only users are subjects."""
    assert subject_of(text) == expected


def test_the_type_of_a_policy_is_custom_by_default() -> None:
    """Unknown words as well."""
    found = [policy_type_of(text) for text in (None, "", "x", "custom", "DEFAULT")]
    assert found == [PolicyType.CUSTOM] * 4 + [PolicyType.DEFAULT]


def test_entries_about_the_same_resource_are_replaced(acls: Acls) -> None:
    """Others are added, each to the policy of its type."""
    acls.put(ALICE, acl_of(policies(entry("Topic:T", "Pub", source_ips=["10.0.0.1"]), entry("Group:G", "Sub"))))
    acls.put(ALICE, acl_of(policies(entry("Topic:T", "Sub", decision="Deny"), entry("Topic:S"))))
    acls.put(ALICE, acl_of(policies(entry("Topic:*"), type_="Default")))
    info = acls.find(ALICE)
    assert info is not None
    assert info.policies == [
        PolicyInfo(
            "Custom",
            [
                PolicyEntryInfo("Topic:T", ["Sub"], None, "Deny"),
                PolicyEntryInfo("Group:G", ["Sub"], None, "Allow"),
                PolicyEntryInfo("Topic:S", ["Pub"], None, "Allow"),
            ],
        ),
        PolicyInfo("Default", [PolicyEntryInfo("Topic:*", ["Pub"], None, "Allow")]),
    ]


def test_policies_need_a_user(acls: Acls) -> None:
    """Each request has its own remark."""
    with pytest.raises(RequestError, match=r"The subject of User:x is not exist\."):
        acls.put("User:x", acl_of(policies(entry())))
    with pytest.raises(RequestError, match=r"The subject is not exist\."):
        acls.find("User:x")
    with pytest.raises(RequestError, match=r"The subject is not exist\."):
        acls.delete("User:x", PolicyType.CUSTOM, None)
    with pytest.raises(RequestError, match=r"The acl is not exist\."):
        acls.delete(ALICE, PolicyType.CUSTOM, None)
    assert acls.find(ALICE) is None


def test_an_entry_or_all_policies_are_deleted(acls: Acls) -> None:
    """A policy without entries, and a subject without policies, disappear."""
    acls.put(ALICE, acl_of(policies(entry("Topic:T"), entry("Topic:S"))))
    acls.put(ALICE, acl_of(policies(entry("Topic:T"), type_="Default")))
    acls.delete(ALICE, PolicyType.CUSTOM, Resource.parse("Topic:other"))
    acls.delete(ALICE, PolicyType.CUSTOM, Resource.parse("Topic:T"))
    acls.delete(ALICE, PolicyType.DEFAULT, Resource.parse("Topic:T"))
    assert acls.find(ALICE) == AclInfo(ALICE, policies(entry("Topic:S"), type_="Custom"))
    acls.delete(ALICE, PolicyType.CUSTOM, Resource.parse("Topic:S"))
    assert acls.find(ALICE) is None
    acls.put(ALICE, acl_of(policies(entry("Topic:T"), entry("Topic:S"))))
    acls.delete(ALICE, PolicyType.CUSTOM, None)
    assert acls.find(ALICE) is None


def test_policies_disappear_with_their_user() -> None:
    """A later user of the same name has no rights."""
    users = Users([User("alice", "pw")])
    acls = Acls(users)
    users.load(None)
    acls.put(ALICE, acl_of(policies(entry())))
    users.delete("alice")
    assert acls.of_user("alice") == ()


def test_filters(acls: Acls) -> None:
    """Parts of subjects and resources; a resource filter that the subject contains selects all its resources."""
    acls.put("User:bob", acl_of(policies(entry("Topic:T"))))
    acls.put(ALICE, acl_of(policies(entry("Topic:T"), entry("Group:G"))))
    found = {
        filters: [
            (info.subject, [one.resource for policy in info.policies for one in policy.entries])
            for info in acls.matching(*filters)
        ]
        for filters in (("", ""), ("bo", ""), ("", "Group"), ("", "User:a"), ("x", ""), ("bob", "Group"))
    }
    both = [(ALICE, ["Topic:T", "Group:G"]), ("User:bob", ["Topic:T"])]
    assert found == {
        ("", ""): both,
        ("bo", ""): both[1:],
        ("", "Group"): [(ALICE, ["Group:G"])],
        ("", "User:a"): both[:1],
        ("x", ""): [],
        ("bob", "Group"): [],
    }


def test_the_number_of_entries_is_limited(acls: Acls) -> None:
    """The limit itself is permitted; an entry above it is refused, and nothing changes."""
    acls.put(ALICE, acl_of(policies(*(entry(f"Topic:{number}") for number in range(MOST_ENTRIES)))))
    acls.put(ALICE, acl_of(policies(entry("Topic:5", "Sub"))))
    with pytest.raises(RequestError, match="too many entries, the limit is 1000"):
        acls.put(ALICE, acl_of(policies(entry("Topic:x"))))
    assert len(acls.of_user("alice")[0].entries) == MOST_ENTRIES


def test_the_file_contains_all_policies(acls: Acls) -> None:
    """A loaded file gives the same policies."""
    acls.put(ALICE, acl_of(policies(entry("Topic:T*", "Pub", source_ips=["10.0.0.0/8"]), entry("*", "All"))))
    assert decode_acls(acls.encode()) == {ALICE: acls.of_user("alice")}


def stored(resource: str) -> list[dict[str, object]]:
    return [{"entries": [{"resource": resource, "actions": ["All"], "decision": "Allow"}]}]


@pytest.mark.parametrize(
    "table",
    [
        {"alice": {"subject": "alice", "policies": []}},
        {ALICE: {"subject": "User:bob", "policies": stored("*")}},
        {ALICE: {"subject": ALICE, "policies": []}},
        {ALICE: {"subject": ALICE, "policies": stored("x")}},
    ],
)
def test_a_damaged_file_is_an_error(table: dict[str, object]) -> None:
    """Another subject, no policies, or policies that no request could have made."""
    with pytest.raises(ValueError, match="not a table of policies"):
        decode_acls(json.dumps({"aclTable": table}).encode())


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_torn_file_is_an_error(acls: Acls, cut: int) -> None:
    """A part of the file is never a shorter table."""
    acls.put(ALICE, acl_of(policies(entry())))
    with pytest.raises(ValueError, match="not a table of policies"):
        decode_acls(acls.encode()[:cut])
