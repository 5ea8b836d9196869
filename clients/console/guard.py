"""The checks of every request, before a page sees it.

    host        a console on a loopback address accepts only the names of that address: a page of another site whose
                name resolves to 127.0.0.1 (DNS rebinding) gets 421
    session     from the cookie; a new cookie is HttpOnly and SameSite=Strict. Its name contains the port, because
                browsers do not separate cookies by port
    origin      a POST from another origin gets 403 (Origin, Sec-Fetch-Site)
    csrf        a POST without the token of its session gets 403
    login       with accounts, a page without a login leads to /login
    role        each POST of a read-only session, except for login and logout, gets 403

    time        a page that takes longer than PAGE_S gets 503, such as one that reads thousands of messages from a slow
                broker. Actions are not interrupted: each of their calls has a limit of its own

Responses of pages are not stored by browsers. The policy permits scripts and styles of this address only, none inline.
"""

import asyncio
import hmac
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skylarkmq.clients.console.rendering import address, respond
from skylarkmq.clients.console.sessions import Session
from skylarkmq.clients.console.state import Console

MAX_FORM_BYTES: Final = 1 << 20
MAX_FORM_FIELDS: Final = 100
PAGE_S: Final = 25.0
"""Less than the time after which a server closes the connection (`skylarkmq.http_connections`)."""
CSRF_FIELD: Final = "csrf"
LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
STATIC: Final = "/static/"
READ_ONLY: Final = "this session is read-only. Log in with an account that has administrator rights."

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Refused(Exception):
    """A request that no page gets: the status, and the reason in one line."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """Checks requests, and passes them on with `request.state.session` and `request.state.form`."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console
        self._hosts = console.options.hosts

    def __repr__(self) -> str:
        return f"<Guard hosts={sorted(self._hosts)}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        is_static = scope["path"].startswith(STATIC)
        cookie = f"skylark_console_{(scope.get('server') or ('', 0))[1]}"
        session = self._console.sessions.of(request.cookies.get(cookie))
        state = scope.setdefault("state", {})
        state["session"], state["form"], state["cookie"] = session, {}, cookie
        headers = dict(HEADERS)
        if not is_static:
            headers["cache-control"] = "no-store"
            if session.is_new:
                headers["set-cookie"] = cookie_text(cookie, session.id, is_secure=self._console.options.is_secure)
        guarded = _with_headers(send, headers)
        try:
            response = None if is_static and self._is_named(request) else await self._stop(request, session)
        except ClientDisconnect:
            return
        except Refused as refusal:
            if not self._is_named(request):
                response = PlainTextResponse(f"{refusal}\n", refusal.status)
            else:
                response = respond(request, "error.html", refusal.status, title="Refused", reason=str(refusal))
        if response is not None:
            await response(scope, receive, guarded)
        elif is_static or request.method == "POST":
            await self._app(scope, receive, guarded)
        else:
            await self._page(request, receive, guarded)

    async def _page(self, request: Request, receive: Receive, send: Send) -> None:
        """Serve a page that must begin within PAGE_S."""
        limit = asyncio.timeout(PAGE_S)

        async def begun(message: Message) -> None:
            limit.reschedule(None)
            await send(message)

        try:
            async with limit:
                await self._app(request.scope, receive, begun)
        except TimeoutError:
            if not limit.expired():
                raise
            reason = f"the page took more than {PAGE_S:g} s. Check the brokers and the network, or narrow the search."
            late = respond(request, "error.html", HTTPStatus.SERVICE_UNAVAILABLE, title="Too slow", reason=reason)
            await late(request.scope, receive, send)

    async def _stop(self, request: Request, session: Session) -> Response | None:
        """Return a redirect instead of the page; None: the page may be served. Raises Refused."""
        if not self._is_named(request):
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this console is not served as {request.headers.get('host', '')[:200]!r}. "
                f"Open it as one of: {', '.join(sorted(self._hosts))}.",
            )
        path: str = request.scope["path"]
        if request.method == "POST":
            _check_origin(request)
            form = await _form(request)
            request.state.form = form
            if not hmac.compare_digest(form.get(CSRF_FIELD, "").encode(), session.csrf.encode()):
                raise Refused(HTTPStatus.FORBIDDEN, "the form is too old. Go back, load the page again, and repeat it.")
        if self._console.options.accounts is not None and session.login is None and path != LOGIN:
            following = quote(path) if request.method == "GET" and path != "/" else None
            target = address(LOGIN, next=following)
            if request.headers.get("hx-request") == "true":
                return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"hx-redirect": target})
            return RedirectResponse(target, HTTPStatus.SEE_OTHER)
        if request.method == "POST" and path not in {LOGIN, LOGOUT} and not self._console.may_act(session):
            raise Refused(HTTPStatus.FORBIDDEN, READ_ONLY)
        return None

    def _is_named(self, request: Request) -> bool:
        return not self._hosts or host_name(request.headers.get("host", "")) in self._hosts


def cookie_text(name: str, session_id: str, *, is_secure: bool) -> str:
    """Return the Set-Cookie header of a session."""
    return f"{name}={session_id}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")


def host_name(header: str) -> str:
    """Return the host of a Host header, without its port; "" if it is not valid."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _check_origin(request: Request) -> None:
    """Raise Refused for a request that a page of another origin has caused."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_other = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if is_other or site not in {None, "same-origin", "none"}:
        raise Refused(HTTPStatus.FORBIDDEN, "the request comes from a page of another address. Use this console's own.")


async def _form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form. Raises Refused if it is too large or of another type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a form must be application/x-www-form-urlencoded")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_FORM_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a form may have {MAX_FORM_BYTES:,} bytes at most")
    try:
        fields = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the form cannot be read: it must be UTF-8") from None
    return dict(fields)


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            written = MutableHeaders(scope=message)
            for name, value in headers.items():
                if name == "set-cookie":
                    if "set-cookie" not in written:  # a login has set its own
                        written.append(name, value)
                else:
                    written.setdefault(name, value)
        await send(message)

    return guarded
