"""The address that a broker on all addresses advertises: in a pod, in a container, and without a network."""

import ipaddress
import socket
from collections.abc import Callable

import pytest

from skylarkmq.broker.app.host import addresses
from skylarkmq.broker.app.host.addresses import first_outside, named_addresses, own_address, pod_host

POD = "skylark-0.skylark.messaging.svc.cluster.local"
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "POD_IP": "10.244.0.7"}


def named(name: str) -> Callable[[str], str]:
    return {"skylark-0": name}.__getitem__


def test_a_pod_with_a_stable_name_advertises_it() -> None:
    """The name is the canonical name of the host name, below a service of the cluster's DNS."""
    assert pod_host(IN_A_POD, "skylark-0", named(POD)) == POD
    elsewhere = "skylark-0.skylark.a.svc.example.org"
    assert pod_host(IN_A_POD, "skylark-0", named(elsewhere)) == elsewhere


@pytest.mark.parametrize(
    "name", ["skylark-0", "skylark-0.example.org", "localhost", "svc.a.b", "other.s.n.svc.cluster"]
)
def test_any_other_pod_advertises_its_address(name: str) -> None:
    """POD_IP, if the manifest sets it; else the machine's own address."""
    assert pod_host(IN_A_POD, "skylark-0", named(name)) == "10.244.0.7"
    assert pod_host(IN_A_POD | {"POD_IP": ""}, "skylark-0", named(name)) is None
    assert pod_host({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "skylark-0", named(name)) is None


@pytest.mark.parametrize("host_name", ["a" * 64, ".a", "a..b", "\udcff"])
def test_a_host_name_that_the_dns_cannot_have_is_no_address(host_name: str) -> None:
    """The kernel takes any 64 bytes. The pod advertises its address then, another machine that of its route."""
    assert pod_host(IN_A_POD, host_name, socket.getfqdn) == "10.244.0.7"
    assert list(named_addresses(host_name)) == []


def test_outside_of_kubernetes_there_is_no_pod() -> None:
    """Not even a name is looked up."""
    assert pod_host({"POD_IP": "10.244.0.7"}, "skylark-0", dict[str, str]().__getitem__) is None


def test_the_first_address_that_is_no_loopback_address_counts() -> None:
    """In a network without a gateway only the host name has an address."""
    assert first_outside([], ["127.0.1.1", "172.18.0.3"], ["10.0.0.1"]) == "172.18.0.3"
    assert first_outside(["10.0.0.1"], ["172.18.0.3"]) == "10.0.0.1"
    assert first_outside([], ["127.0.1.1"]) == "127.0.0.1"


def test_a_machine_without_a_network_has_the_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """No route, and a host name without an address."""
    monkeypatch.setattr(addresses, "OUTSIDE_ADDRESS", ("255.255.255.255", 9))  # refused without SO_BROADCAST
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    assert own_address() == "127.0.0.1"


def test_this_machine_has_an_address() -> None:
    """Whatever its network is like."""
    assert not ipaddress.ip_address(own_address()).is_unspecified
    assert list(named_addresses("127.0.0.1")) == ["127.0.0.1"]
    assert list(named_addresses("no-such-host.invalid")) == []
