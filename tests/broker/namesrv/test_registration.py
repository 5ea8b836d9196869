"""The registrar against name servers that are down, come up, die, refuse and keep silent."""

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
from tests.harness.waiting import until

IDENTITY = RegisterBrokerHeader(
    broker_name="a", broker_addr="127.0.0.1:10911", cluster_name="C", ha_server_addr="127.0.0.1:10912", broker_id=0
)
EAGER = RegistrationTiming(
    period_s=3600, first_repeat_s=3600, retry_s=0.002, register_timeout_s=10, unregister_timeout_s=0.05
)
REGISTER, UNREGISTER = 103, 104


class Topics:
    """The broker's side: a table that changes."""

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
    """A started registrar; it has been stopped when the block ends."""

    @asynccontextmanager
    async def run(*servers: FakeServer, timing: RegistrationTiming = EAGER) -> AsyncIterator[Registrar]:
        outbound = Outbound(RemotingConfig())
        registrar = Registrar(outbound, [server.address for server in servers], IDENTITY, topics.body, timing)
        registrar.start()
        yield registrar
        await registrar.stop()
        await outbound.stop()

    return run


async def in_time(wanted: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(10):
        await wanted


async def test_it_registers_with_every_name_server_at_the_start(running: Running, topics: Topics) -> None:
    """Each hears who the broker is, its topics, and their checksum."""
    async with FakeServer() as one, FakeServer() as two, running(one, two) as registrar:
        await in_time(registrar.register_now())
        assert registrar.registered
        for server in (one, two):
            asked = await server.asked()
            assert (asked.code, asked.body) == (REGISTER, topics.body())
            assert asked.ext == {
                "brokerName": "a",
                "brokerAddr": "127.0.0.1:10911",
                "clusterName": "C",
                "haServerAddr": "127.0.0.1:10912",
                "brokerId": "0",
                "bodyCrc32": str(zlib.crc32(topics.body()) & 0x7FFF_FFFF),
            }


async def test_it_unregisters_when_it_stops(running: Running) -> None:
    """The name server need not find out by itself."""
    async with FakeServer() as server:
        async with running(server) as registrar:
            await in_time(registrar.register_now())
            while server.unread:
                assert (await server.asked()).code == REGISTER
        asked = await server.asked()
        assert asked.code == UNREGISTER
        assert asked.ext == {
            "brokerName": "a", "brokerAddr": "127.0.0.1:10911", "clusterName": "C", "brokerId": "0",
        }  # fmt: skip
        assert not registrar.registered


async def test_a_change_is_told_before_register_now_returns(running: Running, topics: Topics) -> None:
    """Whoever created a topic may use it everywhere as soon as it is told so."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        (await server.asked()).answer()
        await until(lambda: registrar.registered)
        topics.add("V")
        change = asyncio.ensure_future(registrar.register_now())
        asked = await server.asked()
        assert b'"V"' in asked.body
        assert not change.done()
        asked.answer()
        await in_time(asyncio.wait_for(change, 10))


async def test_changes_of_one_turn_travel_together(running: Running, topics: Topics) -> None:
    """A hundred topics created in one read cost one registration."""
    async with FakeServer() as server, running(server) as registrar:
        await in_time(registrar.register_now())
        await server.asked()
        before = registrar.statistics().name_servers[0].registrations
        changes = []
        for number in range(100):
            topics.add(f"V{number}")
            changes.append(asyncio.ensure_future(registrar.register_now()))
        await asyncio.gather(*changes)
        assert registrar.statistics().name_servers[0].registrations == before + 1


async def test_a_change_during_a_registration_is_told_by_another(running: Running, topics: Topics) -> None:
    """What was on its way already does not count for what came after."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        first = await server.asked()
        topics.add("V")
        change = asyncio.ensure_future(registrar.register_now())
        await asyncio.sleep(0)
        first.answer()
        second = await server.asked()
        assert b'"V"' not in first.body
        assert b'"V"' in second.body
        assert not change.done()
        second.answer()
        await in_time(asyncio.wait_for(change, 10))


async def test_a_change_can_be_told_without_waiting(running: Running, topics: Topics) -> None:
    """Topics made by a first send are announced on the side."""
    async with FakeServer() as server, running(server) as registrar:
        await server.asked()
        await until(lambda: registrar.registered)
        topics.add("V")
        registrar.changed()
        assert b'"V"' in (await server.asked()).body


async def test_it_registers_again_each_period(running: Running) -> None:
    """First after a shorter pause, then once a period."""
    timing = msgspec.structs.replace(EAGER, first_repeat_s=0, period_s=0)
    async with FakeServer() as server, running(server, timing=timing):
        for _ in range(5):
            assert (await server.asked()).code == REGISTER
        assert server.connections == 1


async def test_a_name_server_that_is_down_holds_nobody_up(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The broker is registered with the others, and one line says which one is missing, however often it is tried."""
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
    """Nobody could find it."""
    down = FakeServer()
    await down.open()
    await down.close()
    async with running(down) as registrar:
        await in_time(registrar.register_now())
        assert not registrar.registered


async def test_a_name_server_that_comes_up_is_registered_with(
    running: Running, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """It hears everything that happened meanwhile."""
    caplog.set_level("INFO")
    server = FakeServer()
    await server.open()
    await server.close()
    async with running(server) as registrar:
        await until(lambda: registrar.statistics().name_servers[0].failures > 0)
        topics.add("V")
        async with server:
            assert b'"V"' in (await server.asked()).body
            await until(lambda: registrar.registered)
            assert registrar.statistics().name_servers[0].failure is None
            assert f"registered name_server={server.address}" in caplog.text


async def test_a_name_server_that_dies_and_returns_hears_everything_again(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost connection is enough to notice; one line when it goes, one when it is back."""
    caplog.set_level("INFO")
    async with FakeServer() as server, running(server) as registrar:
        await server.asked()
        await until(lambda: registrar.registered)
        await server.close()
        await until(lambda: registrar.statistics().name_servers[0].failures >= 3)
        assert not registrar.registered
        await server.open()
        assert (await server.asked()).code == REGISTER
        await until(lambda: registrar.registered)
        name = "skylarkmq.broker.namesrv.registration"
        lines = [record.getMessage() for record in caplog.records if record.name == name]
        assert lines == [
            f"registered name_server={server.address}",
            f"not registered name_server={server.address} reason=connection lost",
            f"registered name_server={server.address}",
        ]


async def test_who_waits_is_let_go_when_the_name_server_dies(running: Running) -> None:
    """A request to create a topic does not hang on a dead name server."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        (await server.asked()).answer()
        await until(lambda: registrar.registered)
        change = asyncio.ensure_future(registrar.register_now())
        await server.asked()
        server.hang_up()
        await in_time(asyncio.wait_for(change, 10))


async def test_who_waits_is_not_kept_for_the_next_attempt(running: Running) -> None:
    """Also if the change came while an attempt was under way that then failed."""
    timing = msgspec.structs.replace(EAGER, retry_s=3600)
    async with FakeServer(responds=False) as server, running(server, timing=timing) as registrar:
        first = await server.asked()
        change = asyncio.ensure_future(registrar.register_now())
        await asyncio.sleep(0)
        first.answer(1, "not now")
        await in_time(asyncio.wait_for(change, 10))


async def test_a_refusal_is_told_in_the_log_and_tried_again(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The name server's own words stand in the one line."""
    async with FakeServer(responds=False) as server, running(server) as registrar:
        for _ in range(3):
            (await server.asked()).answer(1, "register broker failed")
        assert not registrar.registered
        assert caplog.text.count("refused with code 1: register broker failed") == 1
        (await server.asked()).answer()
        await until(lambda: registrar.registered)


async def test_a_name_server_that_never_answers_is_given_up(running: Running) -> None:
    """Its connection may be half dead, so the next attempt makes a new one."""
    timing = msgspec.structs.replace(EAGER, register_timeout_s=0.01)
    async with FakeServer(responds=False) as server, running(server, timing=timing) as registrar:
        for _ in range(2):
            await server.asked()
        assert "no response from" in str(registrar.statistics().name_servers[0].failure)
        assert server.connections == 2


async def test_a_silent_name_server_does_not_hold_up_the_stop(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Unregistering is a courtesy."""
    timing = msgspec.structs.replace(EAGER, unregister_timeout_s=0.01)
    async with FakeServer(responds=False) as server:
        async with running(server, timing=timing) as registrar:
            (await server.asked()).answer()
            await until(lambda: registrar.registered)
        assert "not unregistered" in caplog.text


async def test_a_mistake_of_ours_is_logged_and_does_not_end_it(
    running: Running, topics: Topics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be encoded leaves a traceback, and the next attempt is made."""
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
        await server.asked()


async def test_against_our_own_name_server(running: Running, topics: Topics, tmp_path: Path) -> None:
    """Registered, changed and unregistered, as the route table sees it."""
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


def test_the_period_is_held_between_ten_seconds_and_a_minute() -> None:
    """As RocketMQ does with registerNameServerPeriod."""
    periods = [RegistrationTiming.every(ms).period_s for ms in (1, 30_000, 600_000)]
    assert periods == [10.0, 30.0, 60.0]


def test_a_bad_address_is_refused_before_the_start() -> None:
    """A typing error is not tried every second."""
    with pytest.raises(ValueError, match="host:port"):
        Registrar(Outbound.__new__(Outbound), ["nowhere"], IDENTITY, bytes)
