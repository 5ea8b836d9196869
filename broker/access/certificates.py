"""Accounts of TLS client certificates: `tlsAuthMapping` maps the subject of a verified certificate to an account.

    tlsAuthMapping=CN=orders,O=Example=orders-service;CN=ops=admin

A subject must match completely, in any order of its attributes. A connection whose certificate has an account is that
account: its requests need no signature. Source: docs/reference/behaviour.md, "Accounts of client certificates".
"""

from collections.abc import Iterable
from typing import Protocol

from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.access.security_config import MappedSubject
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.command import RemotingCommand


class Certified(Protocol):
    """The part of a source that has the subject of its verified client certificate."""

    certificate_subject: str | None


class CertificateAccounts:
    """The accounts of client certificates."""

    def __init__(self, mapping: Iterable[MappedSubject]) -> None:
        self._accounts = {each.subject: each.account for each in mapping}

    def __repr__(self) -> str:
        return f"<CertificateAccounts {len(self._accounts)}>"

    def __len__(self) -> int:
        return len(self._accounts)

    def account_of(self, source: Certified) -> str | None:
        """Return the account of a source; None without a verified certificate that has one."""
        return self.account_with(source.certificate_subject)

    def account_with(self, subject: str | None) -> str | None:
        """Return the account of a certificate with this subject, or None."""
        return None if subject is None else self._accounts.get(subject)


class CertificateControl:
    """The control of a broker without access control: a certificate proves an account, and all requests are
    permitted."""

    checks_data = False

    def __init__(self, certificates: CertificateAccounts) -> None:
        self._certificates = certificates

    def __repr__(self) -> str:
        return f"<CertificateControl {self._certificates!r}>"

    def check(
        self,
        source: RequestSource,
        command: RemotingCommand,  # noqa: ARG002 (the interface of controls)
        requirement: Requirement,  # noqa: ARG002
    ) -> Caller:
        """Return the caller."""
        account = self._certificates.account_of(source)
        return ANONYMOUS if account is None else Caller(account, Proof.CERTIFICATE, is_admin=True)
