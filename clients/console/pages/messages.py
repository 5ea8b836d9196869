"""Messages: found by id, key, time or offset; one message with its body, properties, trace and groups."""

import asyncio
import socket
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.cluster import Cluster
from skylarkmq.clients.console.fields import optional_time, whole
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.message_bodies import FORMS, preview_of, view_of
from skylarkmq.clients.sdk.admin.messages import KeyQuery, is_offset_id
from skylarkmq.clients.sdk.admin.queue_ranges import part_of, range_from, ranges_of, read, total_of
from skylarkmq.clients.sdk.base.errors import BrokerError, InvalidArgument, NoRoute
from skylarkmq.clients.sdk.connection.topic_route import is_address
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.decimals import INT32_MAX, INT64_MAX
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.message_id import decode_offset_id

WAYS: Final = (("key", "Key or id"), ("time", "Time"), ("offset", "Queue and offset"))
SECTIONS: Final = (("body", "Body"), ("trace", "Trace"), ("groups", "Consumer groups"))
MAX_FOUND: Final = 500
"""Messages of one key from each broker."""


async def messages(request: Request) -> Response:
    """Serve the search, and what it finds."""
    cluster = cluster_of(request)
    query = request.query_params
    topic, by = query.get("topic", "").strip(), query.get("by", "key")
    values: dict[str, Any] = {"topic": topic, "by": by, "query": query, "ways": WAYS, "preview_of": preview_of}
    if not topic:
        return respond(request, "messages.html", rows=None, paging=None, is_cut=False, **values)
    if by == "key":
        key = query.get("key", "").strip()
        found = [] if not key else await _by_key(cluster, topic, key)
        page = paging(request, len(found))
        return respond(request, "messages.html", rows=page.of(found), paging=page, is_cut=False, **values)
    if by == "offset":
        queue = MessageQueue(
            topic, query.get("broker", "").strip(), whole(query.get("queue"), "The queue", 0, INT32_MAX)
        )
        ranges = [await range_from(cluster.admin, queue, whole(query.get("offset"), "The offset", 0, INT64_MAX - 1))]
    else:
        ranges = await ranges_of(
            cluster.admin, topic, optional_time(query.get("since")), optional_time(query.get("until"))
        )
    page = paging(request, total_of(ranges))
    stored, is_cut = await read(cluster.admin, part_of(ranges, page.start, page.stop))
    rows = [each.message for each in stored]
    return respond(request, "messages.html", rows=rows, paging=page, is_cut=is_cut, **values)


async def _by_key(cluster: Cluster, topic: str, key: str) -> list[MessageExt]:
    """Return the messages with a key or an id, oldest first."""
    if is_offset_id(key):
        return [await message_at(cluster, key)]
    found = await cluster.admin.messages.with_key_or_id(topic, key, KeyQuery(limit=MAX_FOUND))
    if not found:
        found = await cluster.admin.messages.with_unique_key(topic, key)
    return sorted(found, key=lambda message: message.store_timestamp)


async def message_at(cluster: Cluster, offset_msg_id: str) -> MessageExt:
    """Return the message with this offset id. InvalidArgument if its address is none of this cluster: an id in a link
    must not make this console connect elsewhere."""
    try:
        ip, port, _ = decode_offset_id(offset_msg_id)
    except ValueError:
        raise InvalidArgument(
            f"{offset_msg_id[:100]!r} is not a message id that shows where the message is stored."
        ) from None
    if (ip, port) not in await _brokers(cluster):
        raise InvalidArgument(f"the id names the broker {ip}:{port}, which is not registered: look for the unique id.")
    return await cluster.admin.messages.at(offset_msg_id)


async def _brokers(cluster: Cluster) -> set[tuple[str, int]]:
    """Return IP address and port of each registered broker."""
    info = await cluster.admin.cluster()
    addresses = {where for data in info.broker_addr_table.values() for where in data.broker_addrs.values()}
    found = await gathered([partial(_resolved, address) for address in addresses if is_address(address)])
    return {each for resolved in found for each in resolved}


async def _resolved(address: str) -> list[tuple[str, int]]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        resolved = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a broker without a valid, known name cannot be connected to either
        return []
    return [(str(each[4][0]), int(each[4][1])) for each in resolved]


async def message(request: Request) -> Response:
    """Serve one message."""
    cluster = cluster_of(request)
    found = await message_at(cluster, request.path_params["id"])
    section = request.query_params.get("show", "body")
    values: dict[str, Any] = {"view": None, "trace": None, "tracks": None}
    if section == "trace":
        values["trace"] = await _trace(cluster, found)
    elif section == "groups":
        values["tracks"] = await _tracks(cluster, found)
    else:
        section, values["view"] = "body", view_of(found.body, request.query_params.get("as", ""))
    return respond(request, "message.html", message=found, forms=FORMS, sections=SECTIONS, section=section, **values)


async def _trace(cluster: Cluster, found: MessageExt) -> list[Any]:
    try:
        return list(await cluster.admin.messages.trace(found.msg_id))
    except NoRoute:  # no trace was ever stored
        return []


async def _tracks(cluster: Cluster, found: MessageExt) -> list[Any]:
    try:
        return list(await cluster.admin.messages.tracks(found))
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return []


ROUTES = [Route("/messages", messages), Route("/messages/{id}", message)]
