"""Sessions of browsers: an id in a cookie, its CSRF token, the account that has logged in, and the next notice.

An id is random. Its CSRF token is an HMAC of the id under a key of this process, so a session without a login needs no
memory. The tables of logins and notices are bounded, and so are a login's age and a notice's length. A login gets a new
id; passwords are kept in memory only, inside the credentials of the login's own client, and requests of the login are
signed with them.
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
MAX_NOTICE_LENGTH: Final = 2_000
"""Characters of a notice, which can repeat a field of a form."""
IDLE_S: Final = 8 * 3600.0
"""A login that sends no request for this time ends."""
LONGEST_S: Final = 24 * 3600.0
"""A login ends after this time in any case: an open page sends a request every 5 s."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Role(Enum):
    """The rights of a session."""

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
    """The session of one request. `login` None: no account has logged in."""

    id: str
    csrf: str
    login: Login | None
    is_new: bool


class _Entry(NamedTuple):
    """A login with its times, in monotonic seconds."""

    login: Login
    begun_s: float
    used_s: float

    def is_over(self, now_s: float) -> bool:
        return now_s - self.used_s > IDLE_S or now_s - self.begun_s > LONGEST_S


class Sessions:
    """All sessions of one console. `now_s`: monotonic seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._logins: OrderedDict[str, _Entry] = OrderedDict()  # by id, the least recently used first
        self._notices: OrderedDict[str, Notice] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Sessions logins={len(self._logins)}>"

    def of(self, cookie: str | None) -> Session:
        """Return the session of a cookie; a new one without a cookie that this console could have set."""
        if cookie is None or _ID.fullmatch(cookie) is None:
            return self._session(secrets.token_urlsafe(32), None, is_new=True)
        entry, now_s = self._logins.get(cookie), self._now_s()
        if entry is None or entry.is_over(now_s):
            return self._session(cookie, None, is_new=False)
        self._logins[cookie] = entry._replace(used_s=now_s)
        self._logins.move_to_end(cookie)
        return self._session(cookie, entry.login, is_new=False)

    def log_in(self, login: Login) -> Session:
        """Return the session of a new login."""
        session, now_s = self._session(secrets.token_urlsafe(32), login, is_new=True), self._now_s()
        self._logins[session.id] = _Entry(login, now_s, now_s)
        return session

    def log_out(self, session: Session) -> Login | None:
        """End the login of a session, and return it."""
        entry = self._logins.pop(session.id, None)
        return None if entry is None else entry.login

    def ended(self) -> list[Login]:
        """Remove and return the logins that are idle or old, and the least recently used ones beyond MAX_LOGINS."""
        now_s = self._now_s()
        over = [key for key, entry in self._logins.items() if entry.is_over(now_s)]
        ended = [self._logins.pop(key).login for key in over]
        while len(self._logins) > MAX_LOGINS:
            ended.append(self._logins.popitem(last=False)[1].login)
        return ended

    def close(self) -> list[Login]:
        """Remove and return all logins."""
        logins = [entry.login for entry in self._logins.values()]
        self._logins.clear()
        return logins

    def notify(self, session: Session, notice: Notice) -> None:
        """Show a notice on the next page of a session; a long one is cut."""
        self._notices[session.id] = notice._replace(text=notice.text[:MAX_NOTICE_LENGTH])
        while len(self._notices) > MAX_NOTICES:
            self._notices.popitem(last=False)

    def take_notice(self, session: Session) -> Notice | None:
        """Return the notice for this page, once."""
        return self._notices.pop(session.id, None)

    def _session(self, session_id: str, login: Login | None, *, is_new: bool) -> Session:
        csrf = hmac.new(self._key, session_id.encode(), sha256).hexdigest()
        return Session(session_id, csrf, login, is_new)
