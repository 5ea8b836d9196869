"""Settings of brokers, by key. The broker that serves the console also gives the origin of each value.

Other brokers return key and value only (GET_BROKER_CONFIG, 26). Values of keys whose names suggest a secret are hidden.
"""

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of, console_of
from skylarkmq.clients.sdk.admin.secret_settings import is_secret
from skylarkmq.clients.sdk.base.errors import InvalidArgument

HIDDEN: Final = "(hidden)"


class SettingRow(NamedTuple):
    """A setting; `origin` is None if it is not known."""

    key: str
    value: str
    origin: str | None


async def settings(request: Request) -> Response:
    """Serve the settings of one broker: the chosen one, else the one that serves the console, else the first."""
    options = console_of(request).options
    masters = await cluster_of(request).admin.masters()
    chosen = request.query_params.get("broker") or options.own_broker
    if chosen not in masters:
        if request.query_params.get("broker"):
            raise InvalidArgument(f"no master of broker {chosen!r} is registered. Choose one from the list.")
        chosen = next(iter(masters), "")
    rows = await _rows(request, chosen, masters.get(chosen))
    text = request.query_params.get("q", "").strip()
    found = [row for row in rows if text.lower() in row.key.lower()]
    page = paging(request, len(found))
    return respond(
        request, "settings.html", rows=page.of(found), paging=page, brokers=list(masters), broker=chosen, query=text
    )


async def _rows(request: Request, broker: str, where: str | None) -> list[SettingRow]:
    options = console_of(request).options
    if options.own_settings is not None and broker == options.own_broker:
        rows = [SettingRow(row.key, row.value, row.origin) for row in options.own_settings()]
    elif where is None:
        rows = []
    else:
        table = await cluster_of(request).admin.brokers.config(where)
        rows = [SettingRow(key, _shown(key, value), None) for key, value in table.items()]
    return sorted(rows, key=lambda row: row.key)


def _shown(key: str, value: str) -> str:
    return HIDDEN if is_secret(key, value) else value


ROUTES = [Route("/settings", settings)]
