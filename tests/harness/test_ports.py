"""Ports of daemons in tests."""

from tests.harness.ports import PARTS, PORTS, free_ports, ports_of


def test_workers_have_different_ports() -> None:
    """No two workers choose the same port for daemons that start at the same time."""
    parts = [set(ports_of(f"gw{n}")) for n in range(PARTS)]
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert set().union(*parts) <= set(PORTS)
    assert ports_of(f"gw{PARTS}") == ports_of("gw0")
    assert ports_of(None) == PORTS


def test_ports_are_different() -> None:
    """Neither a port nor one beside it is given twice."""
    ports = free_ports(20, beside=(1, 2))
    assert len({port + distance for port in ports for distance in (0, 1, 2)}) == 60
