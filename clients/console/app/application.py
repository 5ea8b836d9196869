"""The console as an ASGI application: routes, start and stop, and errors as pages.

Errors of the cluster become a page with cause and next step:

    503   no name server or broker can be reached, or it does not respond
    404   unknown topic, group or message
    403   the account has no permission
    400   an argument is not allowed
    502   the broker refused the request for another reason, or its response cannot be used
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from skylarkmq.clients.console.guard import LOGIN, LOGOUT, Guard, cookie_text
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.pages import (
    connections,
    dead_letters,
    delayed,
    groups,
    messages,
    overview,
    replication,
    settings,
    topics,
    transactions,
)
from skylarkmq.clients.console.rendering import compile_templates, form_of, redirect, respond
from skylarkmq.clients.console.state import Console, console_of, session_of
from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidArgument,
    NoRoute,
    RequestTimeout,
    is_denied,
)
from skylarkmq.protocol.codes import ResponseCode

STATIC_FILES: Final = Path(__file__).parent.parent / "static"
UNREACHABLE: Final = (ConnectFailed, ConnectionLost, RequestTimeout)
UNKNOWN: Final = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.CONSUMER_NOT_ONLINE,
)
PAGES: Final = (
    overview, topics, groups, messages, dead_letters,
    delayed, transactions, connections, replication, settings,
)  # fmt: skip
FAILED_LOGIN_S: Final = 0.5
"""The delay of the response to a wrong password."""


def application(options: ConsoleOptions) -> Starlette:
    """Return the console. Its lifespan starts and stops the clients."""
    console = Console(options)
    compile_templates()

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await console.start()
        try:
            yield
        finally:
            await console.stop()

    handlers: dict[Any, Any] = {ClientError: _failed, HTTPException: _http_error}
    app = Starlette(
        routes=[*_own_routes(), *(route for page in PAGES for route in page.ROUTES)],
        middleware=[Middleware(Guard, console=console)],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    app.state.console = console
    return app


def _own_routes() -> list[Route | Mount]:
    return [
        Mount("/static", StaticFiles(directory=STATIC_FILES), name="static"),
        Route(LOGIN, _login_page, methods=["GET"]),
        Route(LOGIN, _log_in, methods=["POST"]),
        Route(LOGOUT, _log_out, methods=["POST"]),
    ]


# ---------------------------------------------------------------------------------------------------------------- login


async def _login_page(request: Request) -> Response:
    if console_of(request).options.accounts is None or session_of(request).login is not None:
        return redirect(request, "/", "You are logged in.")
    return respond(request, "login.html", following=_following(request.query_params.get("next")), reason=None)


async def _log_in(request: Request) -> Response:
    console = console_of(request)
    form = form_of(request)
    following = _following(form.get("next"))
    account, password = form.get("account", "").strip(), form.get("password", "")
    session, status = None, HTTPStatus.UNAUTHORIZED
    reason = "Unknown account or wrong password. Use an account of the broker."
    try:
        if console.options.accounts is not None and account and password:
            session = await console.log_in(account, password)
    except ClientError as error:
        status, reason = _status_of(error)[0], str(error)
    if session is None:
        console.log_refusal(account, None if request.client is None else request.client.host)
        await asyncio.sleep(FAILED_LOGIN_S)
        return respond(request, "login.html", status, following=following, reason=reason)
    await console.log_out(session_of(request))
    response = RedirectResponse(following, HTTPStatus.SEE_OTHER)
    cookie = cookie_text(request.state.cookie, session.id, is_secure=console.options.is_secure)
    response.headers["set-cookie"] = cookie
    return response


async def _log_out(request: Request) -> Response:
    await console_of(request).log_out(session_of(request))
    return redirect(request, LOGIN, "You are logged out.")


def _following(path: str | None) -> str:
    """Return the page to show after a login: a path of this console, never another address."""
    is_own = path is not None and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own and path is not None else "/"


# --------------------------------------------------------------------------------------------------------------- errors


async def _failed(request: Request, error: Exception) -> Response:
    """Return the page of an error of the cluster."""
    status, title = _status_of(error)
    return respond(request, "error.html", status, title=title, reason=str(error))


def _status_of(error: Exception) -> tuple[HTTPStatus, str]:
    code = error.code if isinstance(error, ClientError) else None
    if isinstance(error, InvalidArgument):
        return HTTPStatus.BAD_REQUEST, "This value is not allowed"
    if isinstance(error, UNREACHABLE):
        return HTTPStatus.SERVICE_UNAVAILABLE, "The cluster cannot be reached"
    if code in UNKNOWN:
        return HTTPStatus.NOT_FOUND, "Not found"
    if isinstance(error, NoRoute):
        return HTTPStatus.SERVICE_UNAVAILABLE, "The cluster cannot be reached"
    if isinstance(error, BrokerError) and is_denied(error):
        return HTTPStatus.FORBIDDEN, "No permission"
    return HTTPStatus.BAD_GATEWAY, "The cluster refused the request"


async def _http_error(request: Request, error: Exception) -> Response:
    """Return the page of an error that is this program's own, such as an unknown path."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    reason = error.detail if isinstance(error, HTTPException) else ""
    if status == HTTPStatus.NOT_FOUND and reason == "Not Found":
        reason = "There is no page at this address. The navigation lists all pages."
    return respond(request, "error.html", status, title=HTTPStatus(status).phrase, reason=reason)
