"""`mqadmin acl`: effects on two brokers, tables and JSON, confirmation, failures."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skylarkmq import Admin, Credentials
from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.people.conftest import ROOT_SECRET, Two

PASSWORD = "the-password-of-the-test"


@pytest.fixture(scope="module")
def broker(two: Two) -> InProcessBroker:
    return two.first


@pytest.fixture(autouse=True)
def credentials(tools: Callable[[str, str], None]) -> None:
    """mqadmin has the credentials of `root`."""


@pytest.fixture
def alice(mqadmin: RunCommand, home: Path) -> None:
    """Create the user alice, without policies."""
    file = home / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    mqadmin("user", "delete", "alice", "--yes")
    assert mqadmin("user", "create", "alice", "--password-file", str(file)).code == 0


@pytest.fixture
def put_policies(two: Two) -> Callable[[str, AclInfo], None]:
    """Return a function that stores policies on a broker by the SDK."""

    def put(address: str, acl: AclInfo) -> None:
        async def call() -> None:
            credentials = Credentials("root", ROOT_SECRET)
            async with Admin(namesrv=two.first.namesrv, credentials=credentials) as admin:
                await admin.access.create_acl(address, acl)

        asyncio.run(call())

    return put


ORDERS = ("alice", "--resource", "Topic:Orders")


@pytest.mark.usefixtures("alice")
def test_policies_are_created_listed_changed_and_deleted(
    mqadmin: RunCommand, json_of: Callable[..., Any], answers: Callable[[str], None], two: Two
) -> None:
    """On all brokers; options that are not given to `update` stay."""
    places = [two.first.address, two.second.address]
    created = mqadmin("acl", "create", *ORDERS, "--resource", "group:bill*", "--actions", "pub, SUB", "--source-ip",
                      "10.0.0.0/8")  # fmt: skip
    assert (created.code, created.err) == (0, "")
    assert created.out == (
        f"Policies of User:alice for Topic:Orders, group:bill* are created on {', '.join(places)}.\n"
    )
    row = {
        "subject": "User:alice",
        "resource": "Topic:Orders",
        "actions": ["Pub", "Sub"],
        "decision": "Allow",
        "sourceIps": ["10.0.0.0/8"],
        "type": "Custom",
        "brokers": places,
    }
    assert json_of("acl", "list", "--subject", "ALI") == {"policies": [row | {"resource": "Group:bill*"}, row]}
    updated = json_of("acl", "update", *ORDERS, "--decision", "deny")
    assert updated == {"subject": "User:alice", "resources": ["Topic:Orders"], "action": "updated", "servers": places}
    assert json_of("acl", "list", "--resource", "orders")["policies"] == [row | {"decision": "Deny"}]
    json_of("acl", "update", "User:alice", "--resource", "topic:Orders", "--source-ip", "all", "--actions", "All")
    shown = json_of("acl", "show", "alice")
    assert shown["policies"][1] == row | {"decision": "Deny", "actions": ["All"], "sourceIps": []}
    assert json_of("acl", "show", "user:alice") == json_of("acl", "show", "User:alice") == shown
    assert json_of("user", "show", "alice")["policies"] == shown["policies"]
    table = mqadmin("acl", "show", "alice").out.splitlines()
    assert re.split(r"\s{2,}", table[0]) == ["Subject", "Resource", "Actions", "Decision", "From", "Type", "Brokers"]
    assert re.split(r"\s{2,}", table[2])[:6] == ["User:alice", "Topic:Orders", "All", "Deny", "all", "Custom"]
    answers("no\n")
    refused = mqadmin("acl", "delete", "alice", "--all")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("4 policies of User:alice will be deleted on 2 brokers. Go on? [y/N] ")
    assert mqadmin("acl", "delete", *ORDERS, "--yes").out == (
        f"Policies of User:alice for Topic:Orders are deleted on {', '.join(places)}.\n"
    )
    assert [policy["resource"] for policy in json_of("acl", "list")["policies"]] == ["Group:bill*"]
    assert "for all resources are deleted on" in mqadmin("acl", "delete", "alice", "--all", "--yes").out
    assert mqadmin("acl", "list").out == "No policies.\n"


@pytest.mark.usefixtures("alice")
def test_a_policy_about_which_brokers_differ_has_several_rows(
    mqadmin: RunCommand, json_of: Callable[..., Any], two: Two
) -> None:
    """A change is made where the policy exists; a copy brings it to the other broker."""
    assert mqadmin("acl", "create", *ORDERS, "--actions", "Pub", "-b", "broker-a").code == 0
    again = mqadmin("acl", "create", *ORDERS, "--actions", "Sub")
    assert again.code == 1
    assert f"User:alice has a policy for Topic:Orders on {two.first.address}. `mqadmin acl update`" in again.err
    assert json_of("acl", "update", *ORDERS, "--actions", "Sub")["servers"] == [two.first.address]
    copied = mqadmin("acl", "copy", "alice", "--from", "broker-a", "--to", "broker-b")
    assert copied.out == f"Copied 1 subject from {two.first.address} to {two.second.address}: User:alice.\n"
    (row,) = json_of("acl", "show", "alice")["policies"]
    assert row["brokers"] == [two.first.address, two.second.address]
    mqadmin("acl", "update", *ORDERS, "--actions", "Get", "-b", "broker-b")
    rows = json_of("acl", "show", "alice")["policies"]
    assert sorted((row["actions"], row["brokers"]) for row in rows) == [
        (["Get"], [two.second.address]),
        (["Sub"], [two.first.address]),
    ]


@pytest.mark.usefixtures("alice")
def test_a_default_policy_is_changed_and_deleted(
    mqadmin: RunCommand, json_of: Callable[..., Any], put_policies: Callable[[str, AclInfo], None], two: Two
) -> None:
    """It keeps its type, and a custom policy for the same resource can be created beside it."""
    entry = PolicyEntryInfo("Topic:Orders", ["Sub"], None, "Allow")
    put_policies(two.first.address, AclInfo("User:alice", [PolicyInfo("Default", [entry])]))
    assert mqadmin("acl", "update", *ORDERS, "--actions", "Pub", "-b", "broker-a").code == 0
    (row,) = json_of("acl", "show", "alice")["policies"]
    assert (row["type"], row["actions"]) == ("Default", ["Pub"])
    assert mqadmin("acl", "create", *ORDERS, "--actions", "Get", "-b", "broker-a").code == 0
    assert [row["type"] for row in json_of("acl", "show", "alice")["policies"]] == ["Custom", "Default"]
    assert mqadmin("acl", "delete", *ORDERS, "--yes").code == 0
    assert mqadmin("acl", "show", "alice").code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("create", "absent", "--resource", "Topic:A", "--actions", "Pub"), 2, "there is no user absent on "),
        (("create", "root", "--resource", "Orders", "--actions", "Pub"), 1, "'Orders' is not a resource: Topic:NAME"),
        (("create", "root", "--resource", "Topic:", "--actions", "Pub"), 1, "'Topic:' is not a resource"),
        (
            ("create", "root", "--resource", "Topic:A", "--actions", "Any"),
            1,
            "'Any' is not an action; use one of Pub, Sub",
        ),
        (("create", "root", "--resource", "Topic:A", "--actions", ","), 1, "no action is given"),
        (
            ("create", "root", "--resource", "Topic:A", "--actions", "Pub", "--decision", "x"),
            1,
            "'x' is not a decision",
        ),
        (
            ("create", "root", "--resource", "Topic:A", "--actions", "Pub", "--source-ip", "x"),
            4,
            "source ip is invalid",
        ),
        (("update", "root", "--resource", "Topic:A"), 1, "nothing to change"),
        (("update", "root", "--resource", "Topic:A", "--actions", "Pub"), 2, "no broker has policies of User:root for"),
        (
            ("update", "root", "--resource", "Topic:A", "--source-ip", "all", "--source-ip", "10.0.0.1"),
            1,
            "--source-ip all excludes other addresses",
        ),
        (("delete", "root"), 1, "give either --resource, once or more, or --all."),
        (("delete", "root", "--all", "--resource", "Topic:A"), 1, "give either --resource, once or more, or --all."),
        (("delete", "root", "--all", "--yes"), 2, "no broker has policies of User:root. `mqadmin acl list`"),
        (("show", "root"), 2, "no broker has policies of User:root."),
        (("copy", "root", "--from", "broker-a", "--to", "broker-b"), 2, "has no policies of User:root"),
        (("copy", "--from", "broker-a", "--to", "broker-a"), 1, "give two different ones"),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """With the cause, and the exit code of its class; nothing is done."""
    result = mqadmin("acl", *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert cause in result.err
    assert mqadmin("acl", "list", "--subject", "root").out == "No policies.\n"


@pytest.mark.usefixtures("alice")
def test_a_policy_is_deleted_after_a_question(mqadmin: RunCommand) -> None:
    """Without a terminal and without --yes nothing is done."""
    mqadmin("acl", "create", *ORDERS, "--actions", "Pub")
    refused = mqadmin("acl", "delete", *ORDERS)
    assert (refused.code, refused.out) == (1, "")
    assert "2 policies of User:alice will be deleted on 2 brokers. Nothing is done without --yes" in refused.err
    assert mqadmin("acl", "show", "alice").code == 0
