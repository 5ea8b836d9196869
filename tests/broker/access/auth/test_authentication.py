"""Authentication: RocketMQ's remarks in its order, and the same steps for unknown users and wrong passwords."""

import pytest

from skylarkmq.broker.access.auth.authentication import Authenticator
from skylarkmq.broker.access.auth.users import User, UserChange, Users, UserStatus, UserType
from skylarkmq.broker.access.caller import Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.security_config import MappedSubject
from skylarkmq.protocol.bodies.auth import UserInfo
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.signature import Signed, SigningKey
from tests.harness.signed import signed

BODY = b"body"


@pytest.fixture
def users() -> Users:
    table = Users([User("alice", "pw", UserType.SUPER), User("off", "pw", status=UserStatus.DISABLE)])
    table.load(None)
    return table


class Subject:
    """A connection with a client certificate, or without one."""

    def __init__(self, subject: str | None = None) -> None:
        self.certificate_subject = subject


PLAIN = Subject()
CERTIFICATES = CertificateAccounts([MappedSubject(f"CN={name}", name) for name in ("alice", "off", "gone")])


@pytest.fixture
def authenticator(users: Users) -> Authenticator:
    return Authenticator(users, CERTIFICATES)


def signer(authenticator: Authenticator, request: RemotingCommand) -> str | None:
    identity = authenticator.identify(PLAIN, request)
    return None if identity is None else identity.user.username


def command(ext: dict[str, str] | None, body: bytes = BODY, version: int = 479) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, body=body)
    request.ext = ext
    request.version = version
    return request


ALICE = signed("alice", "pw", {"b": "T"}, BODY)


def without(ext: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in ext.items() if key != name}


@pytest.mark.parametrize(
    ("request_", "remark"),
    [
        (command(None), "username cannot be null."),
        (command({}), "username cannot be null."),
        (command(without(ALICE, "AccessKey")), "username cannot be null."),
        (command(ALICE | {"AccessKey": ""}), "username cannot be null."),
        (command(signed("bob", "pw", {}, BODY)), "User:bob is not found."),
        (command(without(signed("bob", "pw"), "Signature")), "User:bob is not found."),
        (command(signed("off", "pw", {}, BODY)), "User:off is disabled."),
        (command(signed("off", "wrong", {}, BODY)), "User:off is disabled."),
        (command(signed("alice", "wrong", {}, BODY)), "check signature failed."),
        (command(without(ALICE, "Signature")), "check signature failed."),
        (command(ALICE | {"Signature": ""}), "check signature failed."),
        (command(ALICE | {"Signature": "ä"}), "check signature failed."),
        (command(ALICE | {"b": "S"}), "check signature failed."),
        (command(ALICE | {"new": "1"}), "check signature failed."),
        (command(ALICE, b"other"), "check signature failed."),
    ],
)
def test_refused_requests(authenticator: Authenticator, request_: RemotingCommand, remark: str) -> None:
    """The code is NO_PERMISSION (16); a changed field or body is a wrong signature."""
    with pytest.raises(RequestError) as raised:
        authenticator.authenticate(PLAIN, request_)
    assert (raised.value.code, raised.value.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert authenticator.identify(PLAIN, request_) is None


def test_the_user_of_a_right_signature(authenticator: Authenticator) -> None:
    """Fields of any name count; the security token is one of them."""
    assert signer(authenticator, command(ALICE)) == "alice"
    ext = signed("alice", "pw", {"SecurityToken": "t", "OnsChannel": "ALIYUN", "é": "ü"}, BODY)
    assert signer(authenticator, command(ext)) == "alice"


@pytest.mark.parametrize(("version", "is_signed"), [(399, False), (400, True), (479, True)])
def test_when_the_flag_of_unique_keys_is_signed(authenticator: Authenticator, version: int, is_signed: bool) -> None:
    """Requests of clients up to 4.9.3 leave `_UNIQUE_KEY_QUERY` out of the signature."""
    flag = {"_UNIQUE_KEY_QUERY": "true"}
    ext = signed("alice", "pw", flag, BODY) if is_signed else flag | signed("alice", "pw", {}, BODY)
    assert signer(authenticator, command(ext, version=version)) == "alice"
    other = 479 if version == 399 else 399
    assert signer(authenticator, command(ext, version=other)) is None


def test_unknown_users_and_wrong_passwords_take_the_same_steps(
    authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each computes one signature over the whole request, also without a user and for a disabled one."""
    verified: list[tuple[bytes, bytes]] = []
    has_signed = SigningKey.has_signed

    def counted(key: SigningKey, signed_: Signed, body: bytes | memoryview) -> bool:
        verified.append((signed_.content, bytes(body)))
        return has_signed(key, signed_, body)

    monkeypatch.setattr(SigningKey, "has_signed", counted)
    for username in ("alice", "bobby", "off"):
        verified.clear()
        ext = signed(username, "wrong", {"b": "T"}, BODY)
        for _ in range(2):
            assert signer(authenticator, command(ext)) is None
        assert verified == [((username + "T").encode(), BODY)] * 2


def test_no_password_signs_for_an_unknown_user(users: Users) -> None:
    """The key in the place of the password is random, in each process."""
    first, second = Authenticator(users, CERTIFICATES), Authenticator(users, CERTIFICATES)
    content = Signed("bob", "", b"x")
    signatures = {one._unknown[0].sign(content.content, b"") for one in (first, second)}
    assert len(signatures) == 2


def test_changes_take_effect_at_once(users: Users, authenticator: Authenticator) -> None:
    """A new password, a new state and a deletion affect the next request."""
    request = command(ALICE)
    assert signer(authenticator, request) is not None
    users.update(UserChange.of("alice", UserInfo(password="new")))
    assert signer(authenticator, request) is None
    assert signer(authenticator, command(signed("alice", "new", {}, BODY))) is not None
    users.update(UserChange.of("alice", UserInfo(user_status="disable")))
    assert signer(authenticator, command(signed("alice", "new", {}, BODY))) is None
    users.delete("alice")
    with pytest.raises(RequestError, match=r"User:alice is not found\."):
        authenticator.authenticate(PLAIN, command(signed("alice", "new", {}, BODY)))


@pytest.mark.parametrize(
    ("subject", "remark"),
    [
        ("CN=alice", None),
        ("CN=off", "User:off is disabled"),
        ("CN=gone", "User:gone is not found"),
        ("CN=other", "username cannot be null"),
        (None, "username cannot be null"),
    ],
)
def test_the_certificate_of_a_connection(authenticator: Authenticator, subject: str | None, remark: str | None) -> None:
    """It proves an enabled user of requests without an AccessKey; a signature counts, right or wrong."""
    connection = Subject(subject)
    for unsigned in (None, {"AccessKey": "", "Signature": "x", "OnsChannel": "ALIYUN"}):
        if remark is None:
            assert authenticator.authenticate(connection, command(unsigned))[1] is Proof.CERTIFICATE
        else:
            with pytest.raises(RequestError, match=remark):
                authenticator.authenticate(connection, command(unsigned))
    assert authenticator.authenticate(connection, command(ALICE))[1] is Proof.SIGNATURE
    with pytest.raises(RequestError, match="check signature failed"):
        authenticator.authenticate(connection, command(ALICE | {"Signature": "x"}))


def test_passwords_of_other_listeners(authenticator: Authenticator) -> None:
    """The metrics page accepts enabled users, a name server their signatures."""
    pairs = [("alice", "pw"), ("alice", "x"), ("off", "pw"), ("bob", "pw"), ("bob", ""), ("", "")]
    assert [authenticator.password_matches(*pair) for pair in pairs] == [True, *[False] * 5]
    assert [authenticator.is_known(name) for name in ("alice", "off", "bob")] == [True, False, False]
    right, wrong = Signed("alice", ALICE["Signature"], b"aliceT"), Signed("alice", "x", b"aliceT")
    assert [authenticator.has_signed(one, BODY) for one in (right, wrong)] == [True, False]


def test_no_text_contains_a_secret(authenticator: Authenticator) -> None:
    """Neither of the part nor of its keys."""
    authenticator.authenticate(PLAIN, command(ALICE))
    assert repr(authenticator) == "<Authenticator <Users 2> <CertificateAccounts 3>>"
