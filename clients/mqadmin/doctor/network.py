"""Checks of name servers, registrations and advertised addresses: how a client finds brokers, and reaches them."""

import ipaddress
from typing import Final

from skylarkmq.clients.mqadmin.doctor.findings import Check, Outcomes, error, warning
from skylarkmq.clients.mqadmin.doctor.subject import Subject, targets_in
from skylarkmq.clients.sdk.base.errors import ConnectFailed, ConnectionLost, RequestTimeout
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.bodies.cluster import ClusterInfo

_UNREACHABLE: Final = (ConnectFailed, ConnectionLost, RequestTimeout)


async def name_servers(subject: Subject) -> Outcomes:
    """Each name server responds."""
    for address, view in (await subject.views()).items():
        if isinstance(view, _UNREACHABLE):
            next_step = "Check the address (-n), that the name server runs, and the firewall and TLS on the way."
            yield error(address, f"the name server does not respond: {view}", next_step)
        elif not isinstance(view, ClusterInfo):
            yield error(address, f"the name server refuses to list brokers: {view}", "Check credentials and version.")


async def agreement(subject: Subject) -> Outcomes:
    """All name servers have the same brokers: a client uses only one of them."""
    everything = set(await subject.targets())
    for address, view in (await subject.views()).items():
        if isinstance(view, ClusterInfo):
            for target in sorted(everything - targets_in(view)):
                next_step = f"Add {address} to namesrvAddr of broker {target.name}, or wait 30 s for its registration."
                yield warning(address, f"this name server does not have broker {target}, another one does", next_step)


async def registration(subject: Subject) -> Outcomes:
    """Brokers are registered, and each of them has a master."""
    views = [view for view in (await subject.views()).values() if isinstance(view, ClusterInfo)]
    if views and not any(view.broker_addr_table for view in views):
        next_step = "Start a broker, or set its namesrvAddr to this name server."
        yield error(";".join(subject.name_servers), "no broker is registered", next_step)
    targets = await subject.targets()
    with_master = {target.name for target in targets if target.broker_id == MASTER}
    for name in sorted({target.name for target in targets} - with_master):
        next_step = "Start its master. Until then its queues take no messages."
        yield error(name, "only slaves of this broker are registered", next_step)


async def advertised_addresses(subject: Subject) -> Outcomes:
    """A client on this host can connect to the address of each broker, and clients elsewhere may be able to."""
    is_remote = not all(map(_is_loopback, subject.name_servers))
    for target, state in (await subject.states()).items():
        loopback = is_remote and _is_loopback(target.address)
        if loopback:
            next_step = "Set brokerIP1 of the broker to an address that its clients can reach, and restart it."
            yield error(str(target), "the broker advertises a loopback address, the name server is remote", next_step)
        if isinstance(state, _UNREACHABLE) and not loopback:
            next_step = "Check brokerIP1 and listenPort of the broker, that it runs, and the firewall on the way."
            yield error(str(target), f"the advertised address cannot be used from here: {state}", next_step)
        elif isinstance(state, Exception) and not isinstance(state, _UNREACHABLE):
            next_step = (
                "If access is denied, give credentials (--profile). RocketMQ 4.9 fails in its first seconds: try again."
            )
            yield warning(str(target), f"the broker responds, but does not report its state: {state}", next_step)


async def distinct_addresses(subject: Subject) -> Outcomes:
    """No two brokers advertise the same address."""
    names: dict[str, set[str]] = {}
    for target in await subject.targets():
        names.setdefault(target.address, set()).add(f"{target.name}:{target.broker_id}")
    for address, brokers in sorted(names.items()):
        if len(brokers) > 1:
            what = f"several brokers advertise this address: {', '.join(sorted(brokers))}"
            yield error(address, what, "Set brokerIP1 and listenPort of each broker.")


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return ip.is_loopback or ip.is_unspecified


CHECKS: Final = (
    Check("name servers", name_servers),
    Check("agreement of name servers", agreement),
    Check("registrations", registration),
    Check("distinct addresses", distinct_addresses),
    Check("advertised addresses", advertised_addresses),
)
