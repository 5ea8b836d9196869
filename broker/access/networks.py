"""Networks of administrators: requests that change the cluster are refused from elsewhere without a verified account.

A verified account is one with a signature or a client certificate. Registrations of brokers are not checked here but by
`namesrvAuth`, since brokers run on other machines. Source: docs/reference/behaviour.md, "Networks of administrators".
"""

from collections.abc import Iterable
from typing import Final

from skylarkmq.broker.access.caller import Caller, Proof
from skylarkmq.broker.access.requests.table import REGISTRATION, Requirement
from skylarkmq.broker.base.address_ranges import Network, is_within
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

VERIFIED: Final = frozenset((Proof.SIGNATURE, Proof.CERTIFICATE))


class AdminNetworks:
    """The restriction `adminAllowedNetworks`."""

    checks_data = False

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)

    def __repr__(self) -> str:
        return f"<AdminNetworks {' '.join(map(str, self._networks))}>"

    def check(
        self,
        source: RequestSource,
        command: RemotingCommand,  # noqa: ARG002 (the interface of restrictions)
        requirement: Requirement,
        caller: Caller,
    ) -> None:
        """Raises RequestError(NO_PERMISSION) for a change from another network without a verified account."""
        if not requirement.changes or requirement.code in REGISTRATION or caller.proof in VERIFIED:
            return
        if not is_within(source.host, self._networks):
            name = RequestCode(requirement.code).name
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"{name} ({requirement.code}) is not permitted from {source.host} without an account, "
                "see the setting adminAllowedNetworks",
            )
