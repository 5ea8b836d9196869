"""The control of a name server: `namesrvAuth`.

Requests that only read, such as GET_ROUTEINFO_BY_TOPIC (105), are open to every caller. With `namesrvAuth` all others
need a verified account: the registration of brokers (103, 104, 322, 904), key-values (100, 102) and settings (318)
among them. An account is proven by the signature of the request or, if it is not signed, by the client certificate of
its connection. Without `namesrvAuth` no account is needed; one that is verified may change the cluster from outside
`adminAllowedNetworks`.

The accounts come from `accountsFile`, and for the name server in a broker's process also the broker's own and those
of its access control, which then also checks permissions.
"""

import logging
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.access.accounts import Accounts
from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.gate import Control
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.signature import Signed, signed_parts

LOG_INTERVAL_S: Final = 1.0

log = logging.getLogger(__name__)


class NamesrvControl:
    """Checks the requests of a name server. `is_required`: `namesrvAuth`. `now_s` is a clock that never goes back."""

    checks_data = False

    def __init__(
        self,
        accounts: Accounts,
        certificates: CertificateAccounts,
        now_s: Callable[[], float],
        *,
        is_required: bool,
        broker_control: Control | None = None,
    ) -> None:
        self._accounts = accounts
        self._certificates = certificates
        self._now_s = now_s
        self._is_required = is_required
        self._broker_control = broker_control
        self._next_log_s = 0.0
        self._unlogged = 0

    def __repr__(self) -> str:
        return f"<NamesrvControl {'required' if self._is_required else 'optional'} {self._accounts!r}>"

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Return the caller. Raises RequestError(NO_PERMISSION) for a change without a verified account if one is
        required."""
        if not requirement.changes:
            return ANONYMOUS
        signed = signed_parts(command)
        account = self._certificates.account_of(source) if signed is None else None
        if signed is not None and self._accounts.has_signed(signed, command.body):
            return Caller(signed.access_key, Proof.SIGNATURE, is_admin=True)
        suffices = not self._is_required and self._broker_control is None
        if account is not None and (suffices or self._accounts.is_known(account)):
            return Caller(account, Proof.CERTIFICATE, is_admin=True)
        if self._broker_control is not None and (account is not None or signed is not None):
            return self._checked_by_broker(self._broker_control, source, command, requirement)
        if not self._is_required:
            return ANONYMOUS
        raise self._refusal(source, requirement, signed)

    def _checked_by_broker(
        self, control: Control, source: RequestSource, command: RemotingCommand, requirement: Requirement
    ) -> Caller:
        """Return the caller by the broker's access control."""
        try:
            return control.check(source, command, requirement)
        except RequestError:
            if self._is_required:
                raise
            return ANONYMOUS

    def _refusal(self, source: RequestSource, requirement: Requirement, signed: Signed | None) -> RequestError:
        """Return the error of a request without a verified account, and log it; at most one line per second."""
        name = RequestCode(requirement.code).name
        reason = "it is not signed" if signed is None else "the account or its signature is wrong"
        now_s = self._now_s()
        if now_s < self._next_log_s:
            self._unlogged += 1
        else:
            log.warning(
                "request refused, namesrvAuth code=%s (%d) peer=%s account=%r reason=%s unlogged=%d",
                name,
                requirement.code,
                source.peer,
                signed and signed.access_key[:255],
                reason,
                self._unlogged,
            )
            self._next_log_s, self._unlogged = now_s + LOG_INTERVAL_S, 0
        return RequestError(
            ResponseCode.NO_PERMISSION, f"{name} ({requirement.code}) needs an account (namesrvAuth): {reason}"
        )
