"""namesrvAuth: which requests a name server refuses, with real signatures."""

import pytest

from skylarkmq.broker.access.accounts import Account, AccountTable
from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.gate import Control
from skylarkmq.broker.access.namesrv_control import NamesrvControl
from skylarkmq.broker.access.requests.table import NAMESRV_REQUIREMENTS, Requirement, requirement_of
from skylarkmq.broker.access.security_config import parse_mapping
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.signature import Signer
from tests.harness.peer import Peer

SECRET = "sesame-sesame"
REGISTER, ROUTE = RequestCode.REGISTER_BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC
CHANGES = sorted(code for code, row in NAMESRV_REQUIREMENTS.items() if row.changes)
READS = sorted(code for code, row in NAMESRV_REQUIREMENTS.items() if not row.changes)
NEEDS = "REGISTER_BROKER (103) needs an account (namesrvAuth): "


class BrokerControl:
    """The access control of a broker with the accounts `root`, which may change the cluster, and `client`."""

    checks_data = True

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        assert source.host
        assert requirement.changes
        account = command.ext_fields().get("AccessKey", "")
        if account != "root":
            raise RequestError(ResponseCode.NO_PERMISSION, f"no permission for {account}")
        return Caller(account, Proof.SIGNATURE, is_admin=True)


class Checks:
    """A control with a connection, and a clock that the test advances."""

    def __init__(self, *, is_required: bool = True, broker_control: Control | None = None) -> None:
        self.now_s = 100.0
        self.connection = Peer(Dispatcher()).connection
        self._control = NamesrvControl(
            AccountTable([Account("broker-a", SECRET), Account("broker-b")]),
            CertificateAccounts(parse_mapping("CN=b=broker-b;CN=shop=shop")),
            lambda: self.now_s,
            is_required=is_required,
            broker_control=broker_control,
        )

    def caller(self, code: int = REGISTER, account: str | None = None, secret: str = SECRET) -> Caller:
        """Return the caller of a request that is signed by `account`. Raises RequestError."""
        command = RemotingCommand.request(code, body=b"body")
        if account is not None:
            Signer(account, secret).sign(command)
        return self._control.check(self.connection, command, requirement_of(code))

    def refusal(self, code: int = REGISTER, account: str | None = None, secret: str = SECRET) -> str:
        with pytest.raises(RequestError) as caught:
            self.caller(code, account, secret)
        assert caught.value.code == ResponseCode.NO_PERMISSION
        return caught.value.remark


async def test_every_change_needs_an_account() -> None:
    """Registrations, key-values, settings, and the other changes; with a signature they are permitted."""
    assert {103, 104, 904, 322, 100, 102, 318, 216, 205, 327} == set(CHANGES)
    for code in CHANGES:
        assert "it is not signed" in Checks().refusal(code)
        assert Checks().caller(code, "broker-a") == Caller("broker-a", Proof.SIGNATURE, is_admin=True)


async def test_reads_are_open() -> None:
    """Routes and the other reads need no account, and a wrong signature does not matter."""
    assert ROUTE in READS
    for code in READS:
        assert Checks().caller(code) == ANONYMOUS
        assert Checks().caller(code, "unknown") == ANONYMOUS


async def test_an_unknown_account_and_a_wrong_secret_get_the_same_response() -> None:
    """An account without a secret cannot sign either."""
    remarks = {
        Checks().refusal(account="unknown"),
        Checks().refusal(account="broker-a", secret="wrong-wrong"),
        Checks().refusal(account="broker-b", secret=""),
    }
    assert remarks == {NEEDS + "the account or its signature is wrong"}


async def test_a_client_certificate_is_an_account() -> None:
    """If the account is one of the name server's; a certificate of another account does not suffice."""
    checks = Checks()
    checks.connection.certificate_subject = "CN=b"
    assert checks.caller() == Caller("broker-b", Proof.CERTIFICATE, is_admin=True)
    checks.connection.certificate_subject = "CN=shop"
    assert checks.refusal() == NEEDS + "it is not signed"
    checks.connection.certificate_subject = "CN=unmapped"
    assert checks.refusal() == NEEDS + "it is not signed"


async def test_without_the_setting_accounts_are_verified_and_not_needed() -> None:
    """A verified account may change the cluster from every network; all others stay anonymous."""
    checks = Checks(is_required=False)
    assert checks.caller() == checks.caller(account="unknown") == ANONYMOUS
    assert checks.caller(account="broker-a").proof is Proof.SIGNATURE
    checks.connection.certificate_subject = "CN=shop"
    assert checks.caller() == Caller("shop", Proof.CERTIFICATE, is_admin=True)


async def test_accounts_of_the_broker_count_with_their_permissions() -> None:
    """Its access control decides about signatures that are not of the name server's own accounts."""
    checks = Checks(broker_control=BrokerControl())
    assert checks.caller(account="root") == Caller("root", Proof.SIGNATURE, is_admin=True)
    assert checks.refusal(account="client") == "no permission for client"
    assert checks.caller(account="broker-a").account == "broker-a"
    assert checks.refusal() == NEEDS + "it is not signed"
    checks.connection.certificate_subject = "CN=shop"
    assert checks.refusal() == "no permission for "
    optional = Checks(is_required=False, broker_control=BrokerControl())
    assert optional.caller(account="client") == ANONYMOUS
    assert optional.caller(account="root").is_admin


async def test_a_refusal_is_logged_once_per_second(caplog: pytest.LogCaptureFixture) -> None:
    """With code, address, account and reason, and the number of refusals that were not logged."""
    checks = Checks()
    checks.refusal()
    checks.refusal(account="broker-a", secret="geheim-geheim")
    checks.now_s += 1
    checks.refusal(RequestCode.PUT_KV_CONFIG, account="x\n" + 300 * "y")
    assert caplog.messages == [
        (
            "request refused, namesrvAuth code=REGISTER_BROKER (103) peer=127.0.0.9:4321 account=None "
            "reason=it is not signed unlogged=0"
        ),
        (
            f"request refused, namesrvAuth code=PUT_KV_CONFIG (100) peer=127.0.0.9:4321 account='x\\n{253 * 'y'}' "
            "reason=the account or its signature is wrong unlogged=1"
        ),
    ]
