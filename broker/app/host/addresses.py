"""The address of this machine that clients can connect to, for a broker that is bound to all addresses.

    a pod with a stable name    its name in the cluster's DNS: skylark-0.skylark.default.svc.cluster.local. A pod gets a
                                new IP address at each start; the name stays. Pods of a StatefulSet have one if the set
                                has a `serviceName`; the kubelet writes it to the pod's /etc/hosts
    another pod                 POD_IP, if the manifest sets it
    everything else             the source address of connections to other networks; in a network without a gateway the
                                address of the host name. In a container both are the container's own address

If none exists, the address is the loopback address, and the configuration refuses to advertise it
(`broker/config/sections.py`).
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

LOOPBACK: Final = "127.0.0.1"
OUTSIDE_ADDRESS: Final = ("192.0.2.1", 9)  # reserved for documentation; nothing is sent to it
IN_KUBERNETES: Final = "KUBERNETES_SERVICE_HOST"  # the kubelet sets this in every container
POD_IP: Final = "POD_IP"
SERVICE_DOMAIN: Final = "svc"


def pod_host(environment: Mapping[str, str], host_name: str, full_name: Callable[[str], str]) -> str | None:
    """Return the stable DNS name of this pod, else its POD_IP; None outside of Kubernetes or without both.

    `full_name` returns the canonical name of a host name. It raises UnicodeError for one that the DNS cannot have.
    """
    if IN_KUBERNETES not in environment:
        return None
    try:
        name = full_name(host_name)
    except UnicodeError:
        name = ""
    labels = name.split(".")
    if labels[0] == host_name and SERVICE_DOMAIN in labels[2:]:  # pod.service.namespace.svc.domain
        return name
    return environment.get(POD_IP) or None


def own_address() -> str:
    """Return the address of this machine for clients; the loopback address if it has no other."""
    return first_outside(routed_addresses(), named_addresses(socket.gethostname()))


def first_outside(*found: Iterable[str]) -> str:
    """Return the first address that is no loopback address, else the loopback address."""
    addresses = (address for addresses in found for address in addresses)
    return next((address for address in addresses if not ipaddress.ip_address(address).is_loopback), LOOPBACK)


def routed_addresses() -> Iterable[str]:
    """Yield the source address of connections to other networks, if there is a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(OUTSIDE_ADDRESS)
        except OSError:
            return
        yield str(probe.getsockname()[0])


def named_addresses(host_name: str) -> Iterable[str]:
    """Yield the IPv4 addresses of a host name; none if it has no address."""
    try:
        infos = socket.getaddrinfo(host_name, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    for *_, address in infos:
        yield str(address[0])
