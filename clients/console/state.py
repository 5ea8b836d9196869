"""The state of a console: its sessions, and the clients of its callers."""

import logging
import time
from typing import Final

from starlette.requests import Request

from skylarkmq.clients.console.cluster import Cluster
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.sessions import Login, Role, Session, Sessions
from skylarkmq.clients.sdk.base.signing import Credentials

LOG_INTERVAL_S: Final = 1.0

log = logging.getLogger(__name__)


class Console:
    """The state of one console: its sessions, and the cluster of callers without a login."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.sessions = Sessions(time.monotonic)
        self._shared: Cluster | None = None
        self._next_log_s = 0.0

    def __repr__(self) -> str:
        return f"<Console {self.options.target.name_servers} {self.sessions!r}>"

    def may_act(self, session: Session) -> bool:
        """Return whether a session may do more than read."""
        if self.options.is_read_only:
            return False
        if self.options.accounts is None:
            return True
        return session.login is not None and session.login.role is Role.OPERATOR

    def cluster_of(self, session: Session) -> Cluster:
        """Return the cluster as the caller sees it."""
        if session.login is not None:
            return session.login.cluster
        assert self._shared is not None, "the guard lets no page without a login pass"
        return self._shared

    async def start(self) -> None:
        """Start the client of callers without a login."""
        if self.options.accounts is None:
            self._shared = Cluster.at(self.options.target, self.options.credentials)
            await self._shared.start()

    async def stop(self) -> None:
        """End all logins, and close all connections."""
        for login in self.sessions.close():
            await login.cluster.close()
        if self._shared is not None:
            await self._shared.close()

    async def log_in(self, account: str, password: str) -> Session | None:
        """Return the session of a new login; None if the account or the password is wrong."""
        assert self.options.accounts is not None
        may_act = await self.options.accounts.may_act(account, password)
        if may_act is None:
            return None
        cluster = Cluster.at(self.options.target, Credentials(account, password))
        await cluster.start()
        session = self.sessions.log_in(Login(account, Role.OPERATOR if may_act else Role.READ_ONLY, cluster))
        for login in self.sessions.ended():
            await login.cluster.close()
        return session

    async def log_out(self, session: Session) -> None:
        """End the login of a session, if it has one, and close its connections."""
        login = self.sessions.log_out(session)
        if login is not None:
            await login.cluster.close()

    def log_refusal(self, account: str, peer: str | None) -> None:
        """Log a refused login, at most one per LOG_INTERVAL_S."""
        now_s = time.monotonic()
        if now_s >= self._next_log_s:
            log.warning("console login refused account=%r peer=%s", account[:255], peer)
            self._next_log_s = now_s + LOG_INTERVAL_S


def console_of(request: Request) -> Console:
    """Return the console that serves a request."""
    console: Console = request.app.state.console
    return console


def session_of(request: Request) -> Session:
    """Return the session that the guard has found."""
    session: Session = request.state.session
    return session


def cluster_of(request: Request) -> Cluster:
    """Return the cluster as the caller sees it."""
    return console_of(request).cluster_of(session_of(request))
