"""Brokers as results: where each one is, and the state that it reports (GET_BROKER_RUNTIME_INFO, 28)."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.people.output import utc_text
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.topic_route import MASTER, is_address
from skylarkmq.clients.terminal.printed_output import Summary


class BrokerPlace(Summary, frozen=True, kw_only=True):
    """The name and address of a broker."""

    cluster: Annotated[str, Meta(description="name of the cluster")]
    name: Annotated[str, Meta(description="name of the broker; its master and slaves share it")]
    id: Annotated[int, Meta(description="0: the master")]
    role: Annotated[str, Meta(description="`master` or `slave`")]
    address: Annotated[str, Meta(description="host:port")]


class BrokerState(Summary, frozen=True, kw_only=True):
    """A broker and its state. Members are null if the broker does not respond or report them."""

    place: Annotated[BrokerPlace, Meta(description="its name and address")]
    version: Annotated[str | None, Meta(description="version by RocketMQ's name")]
    stored_per_second: Annotated[float | None, Meta(description="messages stored, mean of 10 s")]
    delivered_per_second: Annotated[float | None, Meta(description="messages delivered, mean of 10 s")]
    stored_today: Annotated[int | None, Meta(description="messages stored since midnight")]
    delivered_today: Annotated[int | None, Meta(description="messages delivered since midnight")]
    disk_used: Annotated[float | None, Meta(description="used part of the disk of the log, 0 to 1")]
    oldest_message: Annotated[str | None, Meta(description="store time of the oldest message, UTC")]
    started: Annotated[str | None, Meta(description="when it was started, UTC")]
    problem: Annotated[str | None, Meta(description="why it has no state; null: it responds")]


async def places_of(admin: Admin, cluster: str | None = None) -> list[BrokerPlace]:
    """Return all registered brokers, by name and id. CommandFailed if there is no such cluster, or no broker."""
    info = await admin.cluster()
    found = [
        BrokerPlace(
            cluster=data.cluster,
            name=name,
            id=broker_id,
            role="master" if broker_id == MASTER else "slave",
            address=address,
        )
        for name, data in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted(data.broker_addrs.items())
        if cluster in {None, data.cluster}
    ]
    if cluster is not None and cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise not_found(f"no cluster {cluster} is registered. Registered: {known}.")
    return found


async def masters_of(admin: Admin, cluster: str | None = None) -> list[str]:
    """Return the addresses of the masters. CommandFailed if no master is registered."""
    addresses = list((await admin.masters(cluster)).values())
    if not addresses:
        raise not_found("no master is registered. `mqadmin cluster status` lists the brokers.")
    return addresses


async def address_of(admin: Admin, broker: str) -> str:
    """Return the address of a broker: itself if it is host:port, else of the master with that name."""
    if is_address(broker):
        return broker
    if ":" in broker:
        raise usage_error(f"{broker!r} is neither the name of a broker nor host:port.")
    masters = await admin.masters()
    if broker not in masters:
        known = ", ".join(sorted(masters)) or "none"
        raise not_found(f"no master with the name {broker} is registered. Registered: {known}.")
    return masters[broker]


async def states_of(admin: Admin, places: list[BrokerPlace]) -> list[BrokerState]:
    """Return the state of brokers. One that does not respond has a `problem`."""
    return await gathered([partial(_state, admin, place) for place in places])


async def _state(admin: Admin, place: BrokerPlace) -> BrokerState:
    try:
        info = await admin.brokers.runtime_info(place.address)
    except ClientError as error:
        return msgspec.structs.replace(state_of(place, {}), problem=str(error))
    return state_of(place, info)


def state_of(place: BrokerPlace, info: dict[str, str]) -> BrokerState:
    """Return the state in the runtime info of a broker."""
    return BrokerState(
        place=place,
        version=info.get("brokerVersionDesc"),
        stored_per_second=number_of(info.get("putTps")),
        delivered_per_second=number_of(info.get("getTransferredTps")),
        stored_today=_difference(info, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        delivered_today=_difference(info, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        disk_used=number_of(info.get("commitLogDiskRatio")),
        oldest_message=_time(info, "earliestMessageTimeStamp"),
        started=_time(info, "bootTimestamp"),
        problem=None,
    )


def number_of(text: str | None) -> float | None:
    """Return the first number of a text, such as `0.5 0.4 0.3`; None without one, or for one above 64 bits."""
    try:
        number = float((text or "").split(" ")[0])
    except ValueError:
        return None
    return number if abs(number) <= 2.0**63 else None


def _difference(info: dict[str, str], now: str, before: str) -> int | None:
    later, earlier = number_of(info.get(now)), number_of(info.get(before))
    return None if later is None or earlier is None else int(later - earlier)


def _time(info: dict[str, str], key: str) -> str | None:
    return utc_text(int(number_of(info.get(key)) or 0))
