"""adminAllowedNetworks: which requests are refused from which networks, through a dispatcher with a gate."""

from ipaddress import ip_network

import pytest

from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.gate import Gate
from skylarkmq.broker.access.networks import AdminNetworks
from skylarkmq.broker.access.requests.table import NAMESRV_REQUIREMENTS, REGISTRATION, Requirement, requirement_of
from skylarkmq.broker.base.address_ranges import Network
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.peer import Peer

NETWORKS = (ip_network("127.0.0.0/8"), ip_network("10.0.0.0/24"))
READ, CHANGE = RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_BROKER_CONFIG


class Fixed:
    """A control with the same caller for all requests."""

    checks_data = False

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        assert source.host
        assert requirement.code == command.code
        return self.caller


class Unused:
    """A control that must not be called."""

    checks_data = False

    def check(self, *_arguments: object) -> Caller:
        raise AssertionError("a request was checked")


def response_to(
    code: int, host: str, caller: Caller = ANONYMOUS, networks: tuple[Network, ...] = NETWORKS
) -> tuple[int, str | None]:
    """Return code and remark of the response to a request from this address."""
    dispatcher = Dispatcher()
    dispatcher.guard = Gate(Fixed(caller), [AdminNetworks(networks)])
    dispatcher.register([code], lambda _source, _command: RemotingCommand.response(), Pool("admin", 10))
    response = Peer(dispatcher, address=(host, 4321)).call(RemotingCommand.request(code))
    return response.code, response.remark


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", 0), ("10.0.0.255", 0), ("10.0.1.0", 16), ("::1", 16), ("::ffff:10.0.0.9", 0)]
)
async def test_a_change_is_permitted_from_the_networks_only(host: str, expected: int) -> None:
    """Elsewhere it is refused with NO_PERMISSION (16), and the remark names request, address and setting."""
    code, remark = response_to(CHANGE, host)
    assert code == expected
    if code == ResponseCode.NO_PERMISSION:
        assert remark == (
            f"UPDATE_BROKER_CONFIG (25) is not permitted from {host} without an account, "
            "see the setting adminAllowedNetworks"
        )


async def test_a_read_is_permitted_from_everywhere() -> None:
    """The networks concern changes only."""
    assert response_to(READ, "203.0.113.1")[0] == 0


@pytest.mark.parametrize(
    ("proof", "expected"),
    [(Proof.SIGNATURE, 0), (Proof.CERTIFICATE, 0), (Proof.WHITE_ADDRESS, 16), (Proof.NONE, 16)],
)
async def test_a_verified_account_may_change_from_everywhere(proof: Proof, expected: int) -> None:
    """A signature or a certificate proves the account; the caller's address does not."""
    assert response_to(CHANGE, "203.0.113.1", Caller("admin", proof))[0] == expected


async def test_no_network_permits_no_address() -> None:
    """An empty setting leaves only accounts."""
    assert response_to(CHANGE, "127.0.0.1", networks=())[0] == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("code", sorted(REGISTRATION))
async def test_brokers_may_register_from_everywhere(code: int) -> None:
    """namesrvAuth decides about registrations: brokers run on other machines."""
    assert response_to(code, "203.0.113.1")[0] == 0
    assert requirement_of(code).changes


async def test_other_changes_of_a_name_server_are_not_permitted_from_everywhere() -> None:
    """Key-values, routes and settings of a name server belong to administrators."""
    changes = {code for code, row in NAMESRV_REQUIREMENTS.items() if row.changes} - REGISTRATION
    assert {RequestCode.PUT_KV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG} <= changes
    assert {response_to(code, "203.0.113.1")[0] for code in changes} == {ResponseCode.NO_PERMISSION}


async def test_runs_of_sends_are_not_checked() -> None:
    """A gate with this restriction only adds nothing to fast-path requests: the dispatcher serves runs unasked."""
    gate = Gate(None, [AdminNetworks(NETWORKS)])
    assert not gate.checks_data
    dispatcher = Dispatcher()
    dispatcher.guard = gate
    runs: list[int] = []

    def serve_run(_source: RequestSource, commands: object, at: int) -> int:
        runs.append(at)
        return len(commands)  # type: ignore[arg-type] # a list of commands

    def not_called(*_arguments: object) -> int:
        raise AssertionError("a run was checked")

    gate.admit_run = not_called  # type: ignore[method-assign, assignment]
    dispatcher.register_run([RequestCode.SEND_MESSAGE_V2], serve_run, Pool("send", 10))
    Peer(dispatcher, address=("203.0.113.1", 1)).send(
        RemotingCommand.request(RequestCode.SEND_MESSAGE_V2), RemotingCommand.request(RequestCode.SEND_MESSAGE_V2)
    )
    assert runs == [0]


async def test_requests_that_change_nothing_are_not_checked() -> None:
    """Neither sends that are not in a run nor heartbeats nor reads: without access control they are all permitted."""
    gate = Gate(Unused(), [AdminNetworks(())])
    connection = Peer(Dispatcher()).connection
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT, RequestCode.GET_BROKER_CONFIG):
        assert gate.admit(connection, RemotingCommand.request(code)) is None
