"""Accounts of pages: HTTP's Basic authentication with the accounts of the daemon, or client certificates.

A request without an account, with an unknown one or with a wrong password gets the same response: 401 with
`WWW-Authenticate`. Passwords are compared in constant time. Failures are logged, at most once per second. A client
certificate that belongs to an account (`tlsAuthMapping`) needs no password.
"""

import base64
import binascii
import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from skylarkmq.broker.access.accounts import Passwords
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.ops.pages.secured_pages import CERTIFICATE_SUBJECT

SCHEME: Final = "basic"
CHALLENGE: Final = 'Basic realm="skylark", charset="UTF-8"'
LOG_INTERVAL_S: Final = 1.0

log = logging.getLogger(__name__)


class PageAccounts(NamedTuple):
    """The accounts that may read a page, with passwords and with client certificates."""

    sources: Sequence[Passwords]
    certificates: CertificateAccounts


class BasicAuthentication(AuthenticationBackend):
    """Authenticates requests by the client certificate, or by the header Authorization."""

    def __init__(self, permitted: PageAccounts) -> None:
        self._sources, self._certificates = permitted
        self._next_log_s = 0.0

    def __repr__(self) -> str:
        return f"<BasicAuthentication {self._sources!r} {self._certificates!r}>"

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        """Return the account of a request. Raises AuthenticationError without one."""
        certified = self._certificates.account_with(conn.scope.get(CERTIFICATE_SUBJECT))
        if certified is not None and any(source.is_known(certified) for source in self._sources):
            return AuthCredentials(("authenticated",)), SimpleUser(certified)
        account, password = credentials_in(conn.headers.get("authorization", ""))
        if not any(source.password_matches(account, password) for source in self._sources):
            self._log_refusal(conn, account)
            raise AuthenticationError("an account is needed")
        return AuthCredentials(("authenticated",)), SimpleUser(account)

    def _log_refusal(self, conn: HTTPConnection, account: str) -> None:
        now_s = time.monotonic()
        if account and now_s >= self._next_log_s:
            peer = None if conn.client is None else conn.client.host
            log.warning("page refused path=%s peer=%s account=%r", conn.url.path, peer, account[:255])
            self._next_log_s = now_s + LOG_INTERVAL_S


def credentials_in(header: str) -> tuple[str, str]:
    """Return account and password of an Authorization header; both are empty if it has no such credentials."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != SCHEME:
        return "", ""
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return "", ""
    account, _, password = text.partition(":")
    return account, password


def protected(page: ASGIApp, permitted: PageAccounts) -> ASGIApp:
    """Return a page that only requests with an account reach."""
    return AuthenticationMiddleware(page, backend=BasicAuthentication(permitted), on_error=_refused)


def _refused(_connection: HTTPConnection, error: AuthenticationError) -> Response:
    headers = {"www-authenticate": CHALLENGE, "cache-control": "no-store"}
    return PlainTextResponse(f"{error}\n", HTTPStatus.UNAUTHORIZED, headers)
