"""The registrar with name servers that are down, come up, die, refuse and do not respond."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.registration import Registrar, RegistrationTiming
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.headers.namesrv import RegisterBrokerHeader
from tests.harness.fake_server import FakeServer
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.waiting import until

IDENTITY = RegisterBrokerHeader(
    broker_name="a", broker_addr="127.0.0.1:10911", cluster_name="C", ha_server_addr="127.0.0.1:10912", broker_id=0
)
FAST_RETRY = RegistrationTiming(
    period_s=3600, first_repeat_s=3600, retry_s=0.002, register_timeout_s=10, unregister_timeout_s=0.05
)
REGISTER, UNREGISTER = 103, 104


class Topics:
    """The broker's topics, which change."""

    def __init__(self) -> None:
        self.counter = 0
        self.names = ["T", "U"]

    def add(self, name: str) -> None:
        self.names.append(name)
        self.counter += 1

    def body(self) -> bytes:
        table = {name: TopicConfig(name) for name in self.names}
        version = DataVersion(counter=self.counter)
        return RegisterBrokerBody(TopicConfigSerializeWrapper(version, table)).encode()


@pytest.fixture
def topics() -> Topics:
    return Topics()


Running = Callable[..., Any]


@pytest.fixture
def running(topics: Topics) -> Running:
    """A started registrar, which is stopped when the block ends."""

    @asynccontextmanager
    async def run(*servers: FakeServer, timing: RegistrationTiming = FAST_RETRY) -> AsyncIterator[Registrar]:
        outbound = Outbound(RemotingConfig())
        registrar = Registrar(outbound, [server.address for server in servers], IDENTITY, topics.body, timing)
        registrar.start()
        yield registrar
        await registrar.stop()
        await outbound.stop()

    return run


async def in_time(wanted: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(WAIT_LIMIT_S):
        await wanted


async def test_the_broker_registers_with_every_name_server_at_start(running: Running, topics: Topics) -> None:
    """Each gets the broker's identity, its topics, and their checksum."""
    async with FakeServer() as one, FakeServer() as two, running(one, two) as registrar:
        await in_time(registrar.register_now())
        assert registrar.registered
        for server in (one, two):
            asked = await server.next_request()
            assert (asked.code, asked.body) == (REGISTER, topics.body())
            assert asked.ext == {
                "brokerName": "a",
                "brokerAddr": "127.0.0.1:10911",
                "clusterName": "C",
                "haServerAddr": "127.0.0.1:10912",
                "brokerId": "0",
                "bodyCrc32": str(zlib.crc32(topics.body()) & 0x7FFF_FFFF),
            }


async def test_the_broker_unregisters_when_it_stops(running: Running) -> None:
    """The name server does not have to wait for the lost connection."""
    async with FakeServer() as server:
        async with running(server) as registrar:
            await in_time(registrar.register_now())
            while server.unread:
                assert (await server.next_request()).code == REGISTER
        asked = await server.next_request()
        assert asked.code == UNREGISTER
        assert asked.ext == {
            "brokerName": "a", "brokerAddr": "127.0.0.1:10911", "clusterName": "C", "brokerId": "0",
        }  # fmt: skip
        assert not registrar.registered


async def test_a_change_is_registered_before_register_now_returns(running: Running, topics: Topics) -> None:
    """A created topic can be used everywhere once the client gets the response."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        (await server.next_request()).respond()
        await until(lambda: registrar.registered)
        topics.add("V")
        change = asyncio.ensure_future(registrar.register_now())
        asked = await server.next_request()
        assert b'"V"' in asked.body
        assert not change.done()
        asked.respond()
        await in_time(asyncio.wait_for(change, WAIT_LIMIT_S))


async def test_changes_of_one_iteration_are_registered_together(running: Running, topics: Topics) -> None:
    """A hundred topics created in one read need one registration."""
    async with FakeServer() as server, running(server) as registrar:
        await in_time(registrar.register_now())
        await server.next_request()
        before = registrar.statistics().name_servers[0].registrations
        changes = []
        for number in range(100):
            topics.add(f"V{number}")
            changes.append(asyncio.ensure_future(registrar.register_now()))
        await asyncio.gather(*changes)
        assert registrar.statistics().name_servers[0].registrations == before + 1


async def test_a_change_during_a_registration_causes_another_one(running: Running, topics: Topics) -> None:
    """The registration in progress does not contain the change."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        first = await server.next_request()
        topics.add("V")
        change = asyncio.ensure_future(registrar.register_now())
        await asyncio.sleep(0)
        first.respond()
        second = await server.next_request()
        assert b'"V"' not in first.body
        assert b'"V"' in second.body
        assert not change.done()
        second.respond()
        await in_time(asyncio.wait_for(change, WAIT_LIMIT_S))


async def test_a_change_can_be_registered_without_waiting(running: Running, topics: Topics) -> None:
    """Topics that a first send creates are registered in the background."""
    async with FakeServer() as server, running(server) as registrar:
        await server.next_request()
        await until(lambda: registrar.registered)
        topics.add("V")
        registrar.changed()
        assert b'"V"' in (await server.next_request()).body


async def test_the_broker_registers_again_each_period(running: Running) -> None:
    """First after a shorter pause, then once per period."""
    timing = msgspec.structs.replace(FAST_RETRY, first_repeat_s=0, period_s=0)
    async with FakeServer() as server, running(server, timing=timing):
        for _ in range(5):
            assert (await server.next_request()).code == REGISTER
        assert server.connections == 1


async def test_a_name_server_that_is_down_delays_nothing(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The broker is registered with the others, and one line names the missing one, however often it is tried."""
    down = FakeServer()
    await down.open()
    await down.close()
    async with FakeServer() as up, running(down, up) as registrar:
        await in_time(registrar.register_now())
        await until(lambda: registrar.statistics().name_servers[0].failures >= 3)
        await in_time(registrar.register_now())
        assert registrar.registered
        states = registrar.statistics().name_servers
        assert [state.registered for state in states] == [False, True]
        assert "Errno 111" in str(states[0].failure)
        assert caplog.text.count("not registered") == 1
        assert repr(registrar) == "<Registrar a with 1 of 2 name servers>"


async def test_a_broker_without_any_name_server_up_is_not_registered(running: Running) -> None:
    """Clients cannot find it."""
    down = FakeServer()
    await down.open()
    await down.close()
    async with running(down) as registrar:
        await in_time(registrar.register_now())
        assert not registrar.registered


async def test_the_broker_registers_when_a_name_server_comes_up(
    running: Running, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """The registration contains all changes made meanwhile."""
    caplog.set_level("INFO")
    server = FakeServer()
    await server.open()
    await server.close()
    async with running(server) as registrar:
        await until(lambda: registrar.statistics().name_servers[0].failures > 0)
        topics.add("V")
        async with server:
            assert b'"V"' in (await server.next_request()).body
            await until(lambda: registrar.registered)
            assert registrar.statistics().name_servers[0].failure is None
            assert f"registered name_server={server.address}" in caplog.text


async def test_the_broker_registers_again_after_a_name_server_restarts(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost connection is detected at once; one line when it goes down, one when it is back."""
    caplog.set_level("INFO")
    async with FakeServer() as server, running(server) as registrar:
        await server.next_request()
        await until(lambda: registrar.registered)
        await server.close()
        await until(lambda: registrar.statistics().name_servers[0].failures >= 3)
        assert not registrar.registered
        await server.open()
        assert (await server.next_request()).code == REGISTER
        await until(lambda: registrar.registered)
        name = "skylarkmq.broker.namesrv.registration"
        lines = [record.getMessage() for record in caplog.records if record.name == name]
        assert lines == [
            f"registered name_server={server.address}",
            f"not registered name_server={server.address} reason=connection lost",
            f"registered name_server={server.address}",
        ]


async def test_register_now_returns_when_the_name_server_dies(running: Running) -> None:
    """A request that creates a topic does not wait for a dead name server."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        (await server.next_request()).respond()
        await until(lambda: registrar.registered)
        change = asyncio.ensure_future(registrar.register_now())
        await server.next_request()
        server.disconnect()
        await in_time(asyncio.wait_for(change, WAIT_LIMIT_S))


async def test_register_now_does_not_wait_for_the_next_attempt(running: Running) -> None:
    """Also if the change came during an attempt that then failed."""
    timing = msgspec.structs.replace(FAST_RETRY, retry_s=3600)
    async with FakeServer(responds=False) as server, running(server, timing=timing) as registrar:
        first = await server.next_request()
        change = asyncio.ensure_future(registrar.register_now())
        await asyncio.sleep(0)
        first.respond(1, "not now")
        await in_time(asyncio.wait_for(change, WAIT_LIMIT_S))


async def test_a_refused_registration_is_logged_and_retried(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The log line contains the name server's remark."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        for _ in range(3):
            (await server.next_request()).respond(1, "register broker failed")
        assert not registrar.registered
        assert caplog.text.count("refused with code 1: register broker failed") == 1
        (await server.next_request()).respond()
        await until(lambda: registrar.registered)


async def test_a_name_server_without_a_response_gets_a_new_connection(running: Running) -> None:
    """Its connection may be broken, so the next attempt opens a new one."""
    timing = msgspec.structs.replace(FAST_RETRY, register_timeout_s=0.01)
    async with FakeServer(responds=False) as server, running(server, timing=timing) as registrar:
        for _ in range(2):
            await server.next_request()
        assert "no response from" in str(registrar.statistics().name_servers[0].failure)
        assert server.connections == 2


async def test_a_silent_name_server_does_not_delay_the_stop(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The broker stops without being unregistered there."""
    timing = msgspec.structs.replace(FAST_RETRY, unregister_timeout_s=0.01)
    async with FakeServer(responds=False) as server:
        async with running(server, timing=timing) as registrar:
            (await server.next_request()).respond()
            await until(lambda: registrar.registered)
        assert "not unregistered" in caplog.text


async def test_an_internal_error_is_logged_and_the_registration_retried(
    running: Running, topics: Topics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be encoded is logged with a traceback, and the next attempt is made."""
    bodies = iter([None])

    def body() -> bytes:
        next(bodies)
        raise KeyError("no such topic")

    whole = topics.body
    monkeypatch.setattr(topics, "body", body)
    async with FakeServer() as server, running(server) as registrar:
        await until(lambda: registrar.statistics().name_servers[0].failures >= 1)
        assert "KeyError" in caplog.text
        registrar._body = whole
        await server.next_request()


async def test_against_our_own_name_server(running: Running, topics: Topics, tmp_path: Path) -> None:
    """Registered, changed and unregistered, according to the route table."""
    config = NamesrvConfig(bind_address="127.0.0.1", kv_config_path=tmp_path / "kv.json")
    name_server = NameServer(config, RemotingConfig())
    target = FakeServer()
    target.port = await name_server.start("127.0.0.1", 0)
    async with running(target) as registrar:
        await in_time(registrar.register_now())
        assert name_server.routes.topics() == ["T", "U"]
        topics.add("V")
        await in_time(registrar.register_now())
        assert name_server.routes.topics() == ["T", "U", "V"]
    assert name_server.routes.topics() == []
    await name_server.stop()


def test_the_period_is_limited_to_10_s_to_60_s() -> None:
    """As in RocketMQ, for registerNameServerPeriod."""
    periods = [RegistrationTiming.every(ms).period_s for ms in (1, 30_000, 600_000)]
    assert periods == [10.0, 30.0, 60.0]


def test_an_invalid_address_is_rejected_before_the_start() -> None:
    """A typing error is not retried every second."""
    with pytest.raises(ValueError, match="host:port"):
        Registrar(Outbound.__new__(Outbound), ["nowhere"], IDENTITY, bytes)
