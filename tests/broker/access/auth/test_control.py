"""The check of requests: authentication and authorization together, and their whitelists."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from skylarkmq.broker.access.auth.control import NOT_AUTHORIZED, AuthControl
from skylarkmq.broker.access.auth.policies import Acls, acl_of
from skylarkmq.broker.access.auth.users import User, UserChange, Users, UserType
from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.config import AccessConfig
from skylarkmq.broker.access.gate import Gate
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.access.requests.table import BROKER_REQUIREMENTS
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol import compiled
from skylarkmq.protocol.bodies.auth import PolicyEntryInfo, PolicyInfo, UserInfo
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.signature import V4_9_3
from skylarkmq.protocol.stream import CommandDecoder
from tests.harness.peer import Peer
from tests.harness.signed import signed

C = RequestCode
NO_USER = "username cannot be null."
UNMATCHED = "User:alice has no permission to access Topic:{} from 127.0.0.9, no matched policies."


class Checked:
    """A control with a super user `root` and a user `alice` that may publish to `T`; all passwords are `pw`."""

    def __init__(self, **settings: Any) -> None:
        enabled = {"authentication_enabled": True, "authorization_enabled": True}
        self.users = Users([User("root", "pw", UserType.SUPER), User("alice", "pw")])
        self.acls = Acls(self.users)
        self.users.load(None)
        entry = PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")
        self.acls.put("User:alice", acl_of([PolicyInfo(entries=[entry])]))
        self.control = AuthControl(
            AccessConfig(**enabled | settings), "DefaultCluster", self.users, self.acls, CertificateAccounts(())
        )
        self.connection = Peer(Dispatcher()).connection

    def check(self, code: RequestCode, ext: dict[str, str]) -> Caller | str:
        """Return the caller, or the remark of the refusal."""
        try:
            return self.control.check(self.connection, command(code, ext), BROKER_REQUIREMENTS[code])
        except RequestError as error:
            return error.remark if error.code == 16 else str(error)


def command(code: RequestCode, ext: dict[str, str]) -> RemotingCommand:
    request = RemotingCommand.request(code)
    request.ext = ext
    return request


def by(username: str, **fields: str) -> dict[str, str]:
    return signed(username, "pw", fields)


async def test_users_and_super_users() -> None:
    """A user needs a policy, a super user none; without a signature there is no caller."""
    it = Checked()
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="T")) == Caller("alice", Proof.SIGNATURE)
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="S")) == UNMATCHED.format("S")
    assert it.check(C.SEND_MESSAGE_V2, by("root", b="S")) == Caller("root", Proof.SIGNATURE, is_admin=True)
    assert it.check(C.SEND_MESSAGE_V2, {"b": "T"}) == NO_USER
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="T") | {"b": "S"}) == "check signature failed."


async def test_the_first_refused_resource_gives_the_remark() -> None:
    """A pull needs both its topic and its group."""
    it = Checked()
    expected = UNMATCHED.format("T")
    assert it.check(C.PULL_MESSAGE, by("alice", topic="T", consumerGroup="G")) == expected
    entry = PolicyEntryInfo("Topic:T", ["Sub"], None, "Allow")
    it.acls.put("User:alice", acl_of([PolicyInfo(entries=[entry])]))
    expected = expected.replace("Topic:T", "Group:G")
    assert it.check(C.PULL_MESSAGE, by("alice", topic="T", consumerGroup="G")) == expected


async def test_without_authorization_every_user_may_do_everything() -> None:
    """Authentication alone."""
    it = Checked(authorization_enabled=False)
    caller = it.check(C.UPDATE_BROKER_CONFIG, by("alice"))
    assert caller == Caller("alice", Proof.SIGNATURE, is_admin=True)
    assert it.check(C.UPDATE_BROKER_CONFIG, {}) == NO_USER


async def test_whitelisted_requests_need_no_permission() -> None:
    """Authentication remains; names of gRPC requests have no effect."""
    it = Checked(authorization_whitelist="apache.rocketmq.v2.QueryRouteRequest, 310 ,34")
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="S")) == Caller("alice", Proof.SIGNATURE)
    assert it.check(C.SEND_MESSAGE, by("alice", topic="S")) == UNMATCHED.format("S")
    assert it.check(C.SEND_MESSAGE_V2, {"b": "S"}) == NO_USER


async def test_whitelisted_requests_need_no_signature() -> None:
    """Authorization remains, for the user of the signature."""
    it = Checked(authentication_whitelist="310")
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="T")) == Caller("alice", Proof.SIGNATURE)
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="S")) == UNMATCHED.format("S")
    assert it.check(C.SEND_MESSAGE_V2, {"b": "T"}) == NOT_AUTHORIZED
    assert it.check(C.SEND_MESSAGE, {"topic": "T"}) == NO_USER


async def test_a_name_without_its_signature_is_no_user() -> None:
    """A whitelisted request cannot borrow the rights of a super user."""
    it = Checked(authentication_whitelist="25")
    assert it.check(C.UPDATE_BROKER_CONFIG, {"AccessKey": "root", "Signature": "x"}) == NOT_AUTHORIZED
    both = Checked(authentication_whitelist="25", authorization_whitelist="25")
    assert both.check(C.UPDATE_BROKER_CONFIG, {"AccessKey": "root"}) == ANONYMOUS


async def test_a_disabled_or_deleted_user_is_refused_at_once() -> None:
    """The next request of an open connection."""
    it = Checked()
    assert isinstance(it.check(C.SEND_MESSAGE_V2, by("alice", b="T")), Caller)
    it.users.update(UserChange.of("alice", UserInfo(user_status="disable")))
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="T")) == "User:alice is disabled."
    it.users.delete("alice")
    assert it.check(C.SEND_MESSAGE_V2, by("alice", b="T")) == "User:alice is not found."


async def test_changes_are_in_effect_for_the_next_send_of_the_same_user() -> None:
    """Decisions about sends are cached, signatures are not: a policy, a user or a wrong signature counts at once."""
    it = Checked()

    def send(password: str = "pw") -> Caller | str:
        try:
            return it.control.check(it.connection, sent(password=password), BROKER_REQUIREMENTS[C.SEND_MESSAGE_V2])
        except RequestError as error:
            return error.remark

    assert send() == send() == Caller("alice", Proof.SIGNATURE)
    assert send("wrong") == "check signature failed."
    it.users.update(UserChange.of("alice", UserInfo(user_type="Super")))
    assert send() == Caller("alice", Proof.SIGNATURE, is_admin=True)
    it.users.update(UserChange.of("alice", UserInfo(user_type="Normal")))
    it.acls.delete("User:alice", next(iter(it.acls.of_user("alice"))).type, None)
    assert send() == UNMATCHED.format("T")


async def test_sends_of_a_run_are_admitted_up_to_the_first_that_is_refused() -> None:
    """Those like the last permitted one need only their signatures verified; all others are checked as the first. The
    last one counts for its host, and until a user or a policy changes."""
    it = Checked()
    gate = Gate(it.control)

    def admitted(commands: list[RemotingCommand]) -> list[tuple[int, str | None]]:
        """Return how many sends each run admits, and the remark of the refusal after it."""
        found, at = [], 0
        while at < len(commands):
            checked = gate.admit_run(it.connection, commands, at)
            end, refusal = checked.admitted_end, checked.refusal
            found.append((end - at, None if refusal is None else refusal.remark))
            at = end + (refusal is not None)
        return found

    good, wrong, other = sent(), sent(password="wrong"), sent(topic="S")
    failed, denied = "check signature failed.", UNMATCHED.format("S")
    with_query = sent(_UNIQUE_KEY_QUERY="true")  # an older client does not sign it
    for _ in range(2):
        runs = admitted([good, good, good, wrong, good, other, good, with_query, good])
        assert runs == [(3, failed), (1, denied), (1, failed), (1, None)]
    assert it.control.admit_alike(it.connection, [good] * 3, 0, 3)[0] == (3 if compiled.variant() == "compiled" else 0)
    elsewhere: Any = SimpleNamespace(host="192.0.2.2")
    assert it.control.admit_alike(elsewhere, [good], 0, 1)[0] == 0
    it.acls.delete("User:alice", next(iter(it.acls.of_user("alice"))).type, None)
    assert admitted([good]) == [(0, UNMATCHED.format("T"))]
    it.users.delete("alice")
    assert admitted([good]) == [(0, "User:alice is not found.")]


def sent(topic: str = "T", password: str = "pw", **unsigned: str) -> RemotingCommand:
    """Return a send of alice as the decoder returns it; `unsigned` fields are added to the signed ones."""
    fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    ext = signed("alice", password, fields | {"i": "UNIQ_KEY\x01A\x02"}) | unsigned
    frame = encode_command(RemotingCommand(code=C.SEND_MESSAGE_V2, version=V4_9_3 + 1, ext=ext))
    (command,) = CommandDecoder().feed_commands(memoryview(frame))
    assert command.send_header is not None
    return command


async def test_a_gate_refuses_every_served_code_without_a_signature() -> None:
    """No code of the table passes without a user, and a user without policies changes nothing."""
    it = Checked()
    gate = Gate(it.control)
    it.acls.delete("User:alice", next(iter(it.acls.of_user("alice"))).type, None)
    for code, requirement in BROKER_REQUIREMENTS.items():
        refusal = gate.admit(it.connection, command(RequestCode(code), {}))
        assert refusal is not None
        assert (refusal.code, refusal.remark) == (16, NO_USER), code
        if requirement.changes:
            refusal = gate.admit(it.connection, command(RequestCode(code), by("alice")))
            assert refusal is not None, RequestCode(code).name
            assert refusal.code == 16


@pytest.mark.parametrize("ext", [{}, by("alice", b="S"), by("alice", b="T") | {"Signature": "x"}])
async def test_a_refused_request_is_not_kept(ext: dict[str, str]) -> None:
    """Neither by `admit` nor by `admit_run` until the garbage collector runs."""
    it = Checked()
    gate = Gate(it.control)

    def refuse() -> None:
        assert gate.admit(it.connection, command(C.SEND_MESSAGE_V2, ext)) is not None
        assert gate.admit_run(it.connection, [command(C.SEND_MESSAGE_V2, ext)], 0).admitted_end == 0
        assert gate.admit(it.connection, command(C.HEART_BEAT, by("alice"))) is not None

    refuse()  # the first one makes decoders
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            refuse()
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("code", [C.SEND_MESSAGE_V2, C.PULL_MESSAGE])
async def test_no_text_contains_a_secret(code: RequestCode) -> None:
    """Neither of the control nor of a refusal."""
    it = Checked()
    ext = signed("alice", "top-secret", {})
    texts = f"{it.control!r} {it.check(code, ext)}"
    assert "pw" not in texts
    assert ext["Signature"] not in texts


async def test_rights_to_stored_messages() -> None:
    """The user needs the right to the topic of a message; a super user, and a code without authorization, need none."""
    it = Checked(authorization_whitelist=str(int(C.CONSUMER_SEND_MSG_BACK)))
    end, back = C.END_TRANSACTION, C.CONSUMER_SEND_MSG_BACK

    def permits(code: RequestCode, ext: dict[str, str], topic: str, action: Action) -> bool:
        return it.control.rights_of(it.connection, command(code, ext))(topic, action)

    assert permits(end, by("alice"), "T", Action.PUB)
    assert not permits(end, by("alice"), "S", Action.PUB)
    assert not permits(end, {}, "T", Action.PUB)
    assert not permits(end, by("alice") | {"b": "x"}, "T", Action.PUB)
    assert permits(end, by("root"), "S", Action.PUB)
    assert permits(back, by("alice"), "S", Action.SUB)
    assert not permits(C.VIEW_MESSAGE_BY_ID, by("alice"), "T", Action.GET)
