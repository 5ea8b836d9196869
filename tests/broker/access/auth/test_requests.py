"""AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010): codes, remarks and bodies of RocketMQ 5.3.3, and what they wait
for."""

import json
from typing import Any

import pytest

from skylarkmq.broker.access.auth.authentication import Authenticator
from skylarkmq.broker.access.auth.policies import Acls
from skylarkmq.broker.access.auth.requests import FAILED, AuthRequests, NoUsers
from skylarkmq.broker.access.auth.users import User, Users, UserStatus, UserType
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.peer import Peer
from tests.harness.signed import signed

DONE = "not set any response code"
CREATE_ONLY = "The super user can only be create by super user"
UPDATE_ONLY = "The super user can only be update by super user"


class Served:
    """The requests at a dispatcher; users `root` (super) and `alice`, both with the password `pw`."""

    def __init__(self) -> None:
        self.users = Users([User("root", "pw", UserType.SUPER), User("alice", "pw")])
        self.acls = Acls(self.users)
        self.users.load(None)
        self.saved: list[str] = []
        dispatcher = Dispatcher()
        requests = AuthRequests(self.users, self.acls, Authenticator(self.users, CertificateAccounts(())), self._saved)
        for code, handler in requests.handlers().items():
            dispatcher.register([code], handler, Pool("admin", 10))
        self._peer = Peer(dispatcher)

    async def _saved(self, file: str) -> None:
        self.saved.append(file)

    async def call(self, by: str | None, code: int, body: Any = None, **ext: str) -> tuple[int, str | None, Any]:
        """Return code, remark and decoded body of a response to a user's request."""
        data = b"" if body is None else json.dumps(body).encode()
        command = RemotingCommand.request(code, body=data)
        command.ext = dict(ext) if by is None else signed(by, "pw", ext, data)
        response = await self._peer.call_and_wait(command)
        content = bytes(response.body)
        return response.code, response.remark, json.loads(content) if content else None


@pytest.fixture
async def served() -> Served:
    return Served()


def acl(*resources: str, **members: Any) -> dict[str, Any]:
    entries = [{"resource": one, "actions": ["Pub"], "decision": "Allow"} | members for one in resources]
    return {"policies": [{"entries": entries}]}


async def test_a_user_is_created_changed_and_deleted(served: Served) -> None:
    """Each change is on disk before its response; a deletion removes the policies first."""
    assert await served.call("root", 3001, {"password": "p"}, username="bob") == (0, DONE, None)
    assert served.users.find("bob") == User("bob", "p")
    body = {"username": "other", "password": "q", "userType": "Super", "userStatus": "disable"}
    assert await served.call("root", 3002, body, username="bob") == (0, DONE, None)
    assert served.users.find("bob") == User("bob", "q", UserType.SUPER, UserStatus.DISABLE)
    assert served.saved == ["users.json", "users.json"]
    assert await served.call("root", 3003, username="bob") == (0, DONE, None)
    assert served.users.find("bob") is None
    assert served.saved[2:] == ["acls.json", "users.json"]


async def test_a_user_is_returned_with_its_password_to_super_users_only(served: Served) -> None:
    """RocketMQ returns passwords to every permitted user."""
    alice = {"password": "pw", "userStatus": "enable", "userType": "Normal", "username": "alice"}
    root = {"password": "pw", "userStatus": "enable", "userType": "Super", "username": "root"}
    assert await served.call("root", 3004, username="alice") == (0, DONE, alice)
    assert await served.call("root", 3005) == (0, DONE, [alice, root])
    for one in (alice, root):
        del one["password"]
    assert await served.call("alice", 3004, username="root") == (0, DONE, root)
    assert await served.call("alice", 3005, filter="l") == (0, DONE, [alice])
    assert await served.call(None, 3004, username="root") == (0, DONE, root)
    assert await served.call("alice", 3004, username="x") == (0, DONE, None)
    assert await served.call("alice", 3005, filter="x") == (0, DONE, None)


@pytest.mark.parametrize(
    ("by", "code", "body", "username", "expected"),
    [
        ("root", 3001, {"password": "p"}, "", (29, "The username is blank")),
        ("root", 3001, {"password": "p"}, " ", (16, "username can not be blank")),
        ("root", 3001, {}, "bob", (16, "password can not be blank")),
        ("root", 3001, {"password": "p"}, "alice", (16, "The user is existed")),
        ("alice", 3001, {"password": "p", "userType": "super"}, "bob", (1, CREATE_ONLY)),
        (None, 3001, {"password": "p", "userType": "Super"}, "bob", (1, CREATE_ONLY)),
        ("root", 3002, {}, "", (29, "The username is blank")),
        ("root", 3002, {}, "bob", (16, "The user is not exist")),
        ("alice", 3002, {"userType": "Super"}, "alice", (1, UPDATE_ONLY)),
        ("alice", 3002, {"password": "p"}, "root", (16, UPDATE_ONLY)),
        ("root", 3003, None, "", (16, "username can not be blank")),
        ("alice", 3003, None, "root", (16, UPDATE_ONLY)),
        (None, 3003, None, "root", (16, UPDATE_ONLY)),
        ("root", 3004, None, " ", (29, "The username is blank")),
    ],
)
async def test_refused_requests_about_users(
    served: Served, by: str | None, code: int, body: Any, username: str, expected: tuple[int, str]
) -> None:
    """Nothing is changed."""
    before = served.users.encode()
    assert (await served.call(by, code, body, username=username))[:2] == expected
    assert served.users.encode() == before
    assert served.saved == []


async def test_users_without_the_rank_may_manage_normal_users(served: Served) -> None:
    """Their policies permit it, or authorization is off; deleting an unknown user succeeds."""
    assert (await served.call("alice", 3001, {"password": "p"}, username="bob"))[0] == 0
    assert (await served.call("alice", 3002, {"userStatus": "disable"}, username="bob"))[0] == 0
    assert (await served.call("alice", 3003, username="bob"))[0] == 0
    assert await served.call("alice", 3003, username="bob") == (0, DONE, None)


async def test_policies_are_created_read_and_deleted(served: Served) -> None:
    """Each change is on disk before its response."""
    assert await served.call("root", 3009, subject="User:alice") == (0, DONE, None)
    assert await served.call("root", 3006, acl("Topic:T", "Group:G*"), subject="User:alice") == (0, DONE, None)
    update = acl("Topic:T", actions=["Sub", "Pub"], decision="deny", sourceIps=["10.0.0.0/8"])
    assert await served.call("root", 3007, update, subject="User:alice") == (0, DONE, None)
    entries = [
        {"actions": ["Sub", "Pub"], "decision": "Deny", "resource": "Topic:T", "sourceIps": ["10.0.0.0/8"]},
        {"actions": ["Pub"], "decision": "Allow", "resource": "Group:G*"},
    ]
    expected = {"policies": [{"entries": entries, "policyType": "Custom"}], "subject": "User:alice"}
    assert await served.call("root", 3009, subject="User:alice") == (0, DONE, expected)
    assert await served.call("root", 3010) == (0, DONE, [expected])
    expected["policies"] = [{"entries": entries[1:], "policyType": "Custom"}]
    assert await served.call("root", 3010, subjectFilter="ali", resourceFilter="G*") == (0, DONE, [expected])
    assert await served.call("root", 3008, subject="User:alice", resource="Topic:T") == (0, DONE, None)
    assert await served.call("root", 3009, subject="User:alice") == (0, DONE, expected)
    assert await served.call("root", 3008, subject="User:alice") == (0, DONE, None)
    assert await served.call("root", 3010) == (0, DONE, None)
    assert served.saved == ["acls.json"] * 4


async def test_the_subject_of_the_body_comes_before_that_of_the_header(served: Served) -> None:
    """As in RocketMQ, which reads the header only for a body without one."""
    body = acl("Topic:T") | {"subject": "user:alice"}
    assert (await served.call("root", 3006, body, subject="User:root"))[0] == 0
    assert [info.subject for info in served.acls.matching("", "")] == ["User:alice"]


@pytest.mark.parametrize(
    ("code", "body", "subject", "expected"),
    [
        (3006, acl("Topic:T"), "User:bob", (16, "The subject of User:bob is not exist.")),
        (3006, acl("Topic:T"), "Role:bob", (1, FAILED)),
        (3006, acl("Topic:T"), "", (1, FAILED)),
        (3007, acl("Topic"), "User:alice", (0, DONE)),
        (3007, acl("Queue:q"), "User:alice", (16, "The resource is null.")),
        (3007, {"policies": [{"entries": []}]}, "User:alice", (16, "The policies is empty.")),
        (3008, None, "Role:bob", (16, "The subject is null.")),
        (3008, None, "User:bob", (16, "The subject is not exist.")),
        (3008, None, "User:alice", (16, "The acl is not exist.")),
        (3009, None, "User:bob", (16, "The subject is not exist.")),
        (3009, None, "bob", (1, FAILED)),
    ],
)
async def test_codes_and_remarks_about_policies(
    served: Served, code: int, body: Any, subject: str, expected: tuple[int, str]
) -> None:
    """RocketMQ's, also where its broker fails."""
    assert (await served.call("root", code, body, subject=subject))[:2] == expected


@pytest.mark.parametrize(
    ("code", "place"),
    [(3006, "createAcl(AdminBrokerProcessor.java:3158)"), (3007, "updateAcl(AdminBrokerProcessor.java:3185)")],
)
@pytest.mark.parametrize("body", [None, {}, {"policies": []}])
async def test_policies_without_a_body(served: Served, code: int, place: str, body: Any) -> None:
    """RocketMQ's exception, with the place in its source."""
    start = "org.apache.rocketmq.auth.authorization.exception.AuthorizationException: The body of acl is null, "
    remark = f"{start}org.apache.rocketmq.broker.processor.AdminBrokerProcessor.{place}"
    assert await served.call("root", code, body, subject="User:alice") == (1, remark, None)


async def test_a_broker_without_users_refuses_all_of_them() -> None:
    """As RocketMQ without a provider of users."""
    handlers = NoUsers().handlers()
    assert set(handlers) == set(range(3001, 3011))
    dispatcher = Dispatcher()
    for code, handler in handlers.items():
        dispatcher.register([code], handler, Pool("admin", 10))
    response = Peer(dispatcher).call(RemotingCommand.request(3004))
    assert (response.code, response.remark) == (1, FAILED)
