"""Sessions of browsers: an id in a cookie, its CSRF token, the account that has logged in, and the next notice.

An id is random. Its CSRF token is an HMAC of the id under a key of this process, so a session without a login needs no
memory. The tables of logins and notices are bounded. A login gets a new id; passwords are kept in memory only, inside
the credentials of the login's own client, and requests of the login are signed with them.
"""

import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple

from skylarkmq.clients.console.cluster import Cluster

MAX_LOGINS: Final = 200
MAX_NOTICES: Final = 500
IDLE_S: Final = 8 * 3600.0
"""A login that sends no request for this time ends."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Role(Enum):
    """What a session may do."""

    OPERATOR = "operator"
    READ_ONLY = "read-only"


class Notice(NamedTuple):
    """The result of an action, shown once."""

    text: str
    is_error: bool = False


class Login(NamedTuple):
    """An account that has logged in, and its client."""

    account: str
    role: Role
    cluster: Cluster


class Session(NamedTuple):
    """The session of one request. `login` None: nobody has logged in."""

    id: str
    csrf: str
    login: Login | None
    is_new: bool


class Sessions:
    """All sessions of one console. `now_s`: monotonic seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._logins: OrderedDict[str, tuple[float, Login]] = OrderedDict()  # by id, the least recently used first
        self._notices: OrderedDict[str, Notice] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Sessions logins={len(self._logins)}>"

    def of(self, cookie: str | None) -> Session:
        """Return the session of a cookie; a new one without a cookie that this console could have set."""
        if cookie is None or _ID.fullmatch(cookie) is None:
            return self._session(secrets.token_urlsafe(32), None, is_new=True)
        used_s, login = self._logins.get(cookie, (0.0, None))
        if login is not None:
            if self._now_s() - used_s > IDLE_S:
                return self._session(cookie, None, is_new=False)
            self._logins[cookie] = (self._now_s(), login)
            self._logins.move_to_end(cookie)
        return self._session(cookie, login, is_new=False)

    def log_in(self, login: Login) -> Session:
        """Return the session of a new login."""
        session = self._session(secrets.token_urlsafe(32), login, is_new=True)
        self._logins[session.id] = (self._now_s(), login)
        return session

    def log_out(self, session: Session) -> Login | None:
        """End the login of a session, and return it."""
        _, login = self._logins.pop(session.id, (0.0, None))
        return login

    def ended(self) -> list[Login]:
        """Remove and return the logins that were idle for too long, and those beyond MAX_LOGINS."""
        ended: list[Login] = []
        while self._logins:
            oldest, (used_s, login) = next(iter(self._logins.items()))
            if self._now_s() - used_s <= IDLE_S and len(self._logins) <= MAX_LOGINS:
                break
            del self._logins[oldest]
            ended.append(login)
        return ended

    def close(self) -> list[Login]:
        """Remove and return all logins."""
        logins = [login for _, login in self._logins.values()]
        self._logins.clear()
        return logins

    def notify(self, session: Session, notice: Notice) -> None:
        """Show a notice on the next page of a session."""
        self._notices[session.id] = notice
        while len(self._notices) > MAX_NOTICES:
            self._notices.popitem(last=False)

    def take_notice(self, session: Session) -> Notice | None:
        """Return the notice for this page, once."""
        return self._notices.pop(session.id, None)

    def _session(self, session_id: str, login: Login | None, *, is_new: bool) -> Session:
        csrf = hmac.new(self._key, session_id.encode(), sha256).hexdigest()
        return Session(session_id, csrf, login, is_new)
