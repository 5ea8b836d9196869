"""Admin.access: users and policies of a broker with authentication, and accounts of RocketMQ 4.9."""

import json
from collections.abc import Iterator

import pytest

from skylarkmq import Admin, BrokerError, Credentials, InvalidResponse
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.admin.access import PlainAccount
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer

ROOT = Credentials("root", "the root's secret")
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), AUTH) as broker:
        yield broker


async def test_users_are_created_changed_listed_and_deleted(guarded: InProcessBroker) -> None:
    """An absent user is None; a user that exists already is an error; changes keep the other members."""
    address = guarded.address
    async with Admin(namesrv=guarded.namesrv, credentials=ROOT) as admin:
        await admin.access.create_user(address, UserInfo("alice", "first"))
        with pytest.raises(BrokerError):
            await admin.access.create_user(address, UserInfo("alice", "first"))
        await admin.access.update_user(address, UserInfo("alice", user_status="disable"))
        assert await admin.access.user(address, "alice") == UserInfo("alice", "first", "Normal", "disable")
        assert await admin.access.user(address, "bob") is None
        assert {user.username for user in await admin.access.users(address)} == {"root", "alice"}
        assert [user.username for user in await admin.access.users(address, "lic")] == ["alice"]
        await admin.access.delete_user(address, "alice")
        assert await admin.access.user(address, "alice") is None


async def test_policies_are_created_listed_and_deleted(guarded: InProcessBroker) -> None:
    """By subject and resource."""
    address = guarded.address
    entries = [PolicyEntryInfo(resource, ["Pub"], ["10.0.0.0/8"], "Allow") for resource in ("Topic:A", "Topic:B")]
    async with Admin(namesrv=guarded.namesrv, credentials=ROOT) as admin:
        await admin.access.create_user(address, UserInfo("carol", "secret"))
        await admin.access.create_acl(address, AclInfo("User:carol", [PolicyInfo(entries=entries)]))
        denied = PolicyEntryInfo("Topic:A", ["Sub"], None, "Deny")
        await admin.access.update_acl(address, AclInfo("User:carol", [PolicyInfo(entries=[denied])]))
        found = await admin.access.acl(address, "User:carol")
        assert found is not None
        assert {entry.resource: entry.decision for entry in found.policies[0].entries} == {
            "Topic:A": "Deny",
            "Topic:B": "Allow",
        }
        assert [acl.subject for acl in await admin.access.acls(address, "carol", "A")] == ["User:carol"]
        await admin.access.delete_acl(address, "User:carol", "Topic:A")
        await admin.access.delete_acl(address, "User:carol")
        assert await admin.access.acl(address, "User:carol") is None
        assert await admin.access.acls(address) == []


async def test_odd_responses_are_invalid() -> None:
    """A list that is none, and versions that are none."""
    peer = Peer()
    await peer.listen()
    try:
        async with Admin(namesrv=peer.address) as admin:
            peer.on(RequestCode.AUTH_LIST_USER, lambda *_: RemotingCommand.response(body=b'{"a":1}'))
            with pytest.raises(InvalidResponse, match="AUTH_LIST_USER"):
                await admin.access.users(peer.address)
            names = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "version": "{}"}
            peer.on(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, names | {"allAclFileVersion": "[]"})
            with pytest.raises(InvalidResponse, match="GET_BROKER_CLUSTER_ACL_INFO"):
                await admin.access.plain_acl_versions(peer.address)
            with pytest.raises(BrokerError) as refused:
                await admin.access.delete_plain_account(peer.address, "a")
            assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    finally:
        await peer.stop()


def test_secrets_are_part_of_no_repr() -> None:
    """Of users, accounts and the headers that carry them."""
    assert "hidden" not in repr(UserInfo("alice", "hidden"))
    assert "hidden" not in repr(PlainAccount(access_key="alice", secret_key="hidden"))
