"""HTML from templates/: every value is escaped, and a missing one is an error.

    respond(request, "topics.html", names=..., paging=...)

A request of htmx (header HX-Request) with `?part=live` gets only the block `live` of the template.

A broker may serve messages in the same event loop. So a page is rendered in slices of SLICE_PIECES, between which other
tasks run, and templates are compiled before a console serves its first page: that takes some 10 ms for each.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from skylarkmq.clients.console.sessions import Notice
from skylarkmq.clients.console.state import console_of, session_of
from skylarkmq.clients.sdk.admin.topic_kinds import kind_of

TEMPLATES: Final = Path(__file__).parent / "templates"
LIVE: Final = "live"
SLICE_PIECES: Final = 64
"""Pieces that are rendered without a pause: less than 0.2 ms. A piece is the text up to a value, or a value."""

NAVIGATION: Final = (
    ("overview", "/", "Overview"),
    ("topics", "/topics", "Topics"),
    ("groups", "/groups", "Groups"),
    ("messages", "/messages", "Messages"),
    ("dead-letters", "/dead-letters", "Dead letters"),
    ("delayed", "/delayed", "Delayed"),
    ("transactions", "/transactions", "Transactions"),
    ("connections", "/connections", "Connections"),
    ("replication", "/replication", "Replication"),
    ("settings", "/settings", "Settings"),
)

_UNPRINTABLE: Final = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\N{REPLACEMENT CHARACTER}")


def time_text(ms: int | None) -> str:
    """Return a time in UTC; "–" for none, and for a time that no calendar has."""
    if ms is None or ms <= 0:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def count_text(number: float) -> str:
    """Return a number with separators of thousands."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def visible(text: str) -> str:
    """Return a text without control characters, which HTML does not allow."""
    return text.translate(_UNPRINTABLE)


def path_of(*parts: str) -> str:
    """Return the path of a page from the names in it, such as a topic's."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def address(path: str, /, **parameters: object) -> str:
    """Return a path with a query; parameters that are None are left out."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{path}?{query}" if query else path


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.filters |= {"time": time_text, "count": count_text, "visible": visible, "kind": kind_of}
    environment.globals |= {"path_of": path_of, "address": address, "navigation": NAVIGATION}
    return environment


_templates: Final = _environment()


def compile_templates() -> None:
    """Compile all templates, and keep them."""
    for name in _templates.list_templates():
        _templates.get_template(name)


class Page(HTMLResponse):
    """A page that is rendered in slices when it is sent."""

    def __init__(self, template: Template, values: Mapping[str, Any], status: int) -> None:
        super().__init__(status_code=status)
        self._pieces = template.generate(values)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Render the page, and send it as one body with its length."""
        parts = []
        await asyncio.sleep(0)
        while pieces := list(islice(self._pieces, SLICE_PIECES)):
            parts.append("".join(pieces))
            await asyncio.sleep(0)
        self.body = "".join(parts).encode()
        self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form, which the guard has read."""
    form: Mapping[str, str] = request.state.form
    return form


def wants_fragment(request: Request) -> bool:
    """Return whether htmx asks for the part of a page that refreshes."""
    return request.headers.get("hx-request") == "true" and request.query_params.get("part") == LIVE


def respond(request: Request, template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
    """Return a page, or the part of it that refreshes."""
    console, session = console_of(request), session_of(request)
    values |= {
        "request": request,
        "path": request.scope["path"],
        "encoded_path": quote(request.scope["path"]),
        "csrf": session.csrf,
        "account": session.login.account if session.login else None,
        "has_login": console.options.accounts is not None,
        "can_act": console.may_act(session),
        "live_address": _changed(request, "part", LIVE),
        "page_address": lambda parameter, number: _changed(request, parameter, number),
    }
    is_fragment = wants_fragment(request)
    values["layout"] = "fragment.html" if is_fragment else "base.html"
    values["notice"] = None if is_fragment else console.sessions.take_notice(session)
    return Page(_templates.get_template(template), values, status)


def redirect(request: Request, path: str, text: str, *, is_error: bool = False) -> Response:
    """Return a redirect to a page, which shows a text once."""
    console_of(request).sessions.notify(session_of(request), Notice(text, is_error))
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


def _changed(request: Request, parameter: str, value: object) -> str:
    query = {name: text for name, text in request.query_params.items() if name != "part"}
    return address(quote(request.scope["path"]), **(query | {parameter: value}))
