"""Where a slave finds its master: the response to its registration, haMasterAddress, and what it keeps of them."""

from collections.abc import Callable

import pytest

from skylarkmq.broker.ha.status import ReplicationStatus, Role
from skylarkmq.broker.ha.tables.following import Following
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.protocol.headers.namesrv import RegisterBrokerResponseHeader


class Log:
    """Records where it is copied from."""

    def __init__(self) -> None:
        self.addresses: list[str | None] = []
        self.is_connected = False

    def status(self) -> ReplicationStatus:
        return ReplicationStatus(role=Role.FOLLOWER, end=0, committed=0)

    def copy_from(self, address: str | None) -> None:
        self.addresses.append(address)

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class Registrations:
    """The responses of name servers, as the test sets them."""

    def __init__(self) -> None:
        self.master = RegisterBrokerResponseHeader()
        self.on_registered: Callable[[], None] = lambda: None
        self.changes = 0

    def respond(self, log_address: str | None, address: str | None) -> None:
        self.master = RegisterBrokerResponseHeader(log_address, address)
        self.on_registered()

    def changed(self) -> None:
        self.changes += 1


class Parts:
    def __init__(self, configured: str | None = None) -> None:
        self.log, self.registrations = Log(), Registrations()
        outbound = Outbound(RemotingConfig())
        self.calls = MasterCalls(outbound)
        self.following = Following(
            self.log,
            self.calls,
            configured,
            lambda: 0,
            None,  # type: ignore[arg-type]
            outbound,
            self.registrations,  # type: ignore[arg-type]
        )


async def test_both_addresses_come_from_the_registration() -> None:
    """Without a live master there is none for requests; the log keeps its last address."""
    parts = Parts()
    parts.registrations.respond("10.0.0.1:10912", "10.0.0.1:10911")
    assert (parts.log.addresses, parts.calls.address) == (["10.0.0.1:10912"], "10.0.0.1:10911")
    assert parts.following.has_master
    parts.registrations.respond(None, None)
    assert (parts.log.addresses[-1], parts.calls.address) == (None, None)
    assert not parts.following.has_master


async def test_ha_master_address_replaces_that_of_the_log_only() -> None:
    """The tables still come from the registered master."""
    parts = Parts("10.0.0.9:7000")
    parts.registrations.respond("10.0.0.1:10912", "10.0.0.1:10911")
    assert (parts.log.addresses, parts.calls.address) == (["10.0.0.9:7000"], "10.0.0.1:10911")


@pytest.mark.parametrize("is_connected", [True, False])
async def test_the_broker_registers_again_while_its_master_must_be_alive(is_connected: bool) -> None:
    """A connection to the log without a known master: the next periodic registration is too far away."""
    parts = Parts()
    parts.log.is_connected = is_connected
    parts.following.start()
    await parts.following.stop()
    parts.following._seek_master()
    assert parts.registrations.changes == is_connected
