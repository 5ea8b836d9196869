"""The broker's side of the conversation with its name servers: it keeps itself registered with each of them.

One task for each name server registers at once, again after ten seconds, then once a period, and as soon as something
changed. Changes of one loop turn travel together: whoever reports one only wakes the tasks, and they take the broker's
topics as they are when they run. What is told is always the whole table; nothing is lost when a registration is.

    up ──(connection lost, refused, no answer)──> down ──(every second: connect, register)──> up

A name server that is down is logged once, and once more when it is back; nobody waits for it, because it will hear
everything on its return. Its lost connection wakes the task, so a restarted name server has its routes back after about
a second. Source: docs/formats.md, "Name server".
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec

from skylarkmq.broker.remoting.outbound import Outbound, split_address
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.namesrv import BrokerHeader, RegisterBrokerHeader

CRC_MASK: Final = 0x7FFF_FFFF
SHORTEST_PERIOD_S: Final = 10.0
LONGEST_PERIOD_S: Final = 60.0

log = logging.getLogger(__name__)


class RegistrationTiming(msgspec.Struct, frozen=True):
    """Seconds."""

    period_s: float = 30.0  # registerNameServerPeriod
    first_repeat_s: float = 10.0  # a name server may have been starting, too
    retry_s: float = 1.0  # between attempts while a name server is down
    register_timeout_s: float = 24.0  # registerBrokerTimeoutMills
    unregister_timeout_s: float = 3.0  # when stopping, nobody should have to wait for long

    @classmethod
    def every(cls, period_ms: int) -> Self:
        """The default timing with another period, held between ten seconds and a minute as RocketMQ does."""
        return cls(period_s=min(max(period_ms / 1000, SHORTEST_PERIOD_S), LONGEST_PERIOD_S))


class NameServerState(msgspec.Struct, frozen=True):
    """One name server as the broker sees it; `failure` is why the broker is not registered there, if it is not.

    `registrations` and `failures` count attempts since the start.
    """

    address: str
    registered: bool
    registrations: int
    failures: int
    failure: str | None


class RegistrationStatistics(msgspec.Struct, frozen=True):
    """All name servers at one moment."""

    name_servers: tuple[NameServerState, ...]


class RefusedError(Exception):
    """A name server answered a registration with anything but success."""


class _NameServer:
    """What the registrar knows of one name server. `up` is None until the first attempt has ended."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.up: bool | None = None
        self.failure: str | None = None
        self.registrations = 0
        self.failures = 0
        self.due = asyncio.Event()
        self.waiting: list[asyncio.Future[None]] = []

    def state(self) -> NameServerState:
        return NameServerState(
            address=self.address,
            registered=self.up is True,
            registrations=self.registrations,
            failures=self.failures,
            failure=self.failure,
        )

    def came_up(self) -> None:
        if not self.up:
            log.info("registered name_server=%s", self.address)
        self.up = True
        self.failure = None
        self.registrations += 1

    def went_down(self, reason: str) -> None:
        """Whoever waits for this name server need not any longer."""
        if self.up is not False:
            log.warning("not registered name_server=%s reason=%s", self.address, reason)
        self.up = False
        self.failure = str(reason)
        release(self.waiting)
        self.waiting = []


class Registrar:
    """Keeps one broker registered.

    `identity` is what the broker is called and where it is; `body` gives the encoded RegisterBrokerBody of the moment.
    ValueError for an address that is none.
    """

    def __init__(
        self,
        outbound: Outbound,
        addresses: Sequence[str],
        identity: RegisterBrokerHeader,
        body: Callable[[], bytes],
        timing: RegistrationTiming = RegistrationTiming(),
    ) -> None:
        self._outbound = outbound
        self._identity = identity
        self._body = body
        self._timing = timing
        for address in addresses:
            split_address(address)
        self._name_servers = {address: _NameServer(address) for address in addresses}
        self._tasks: list[asyncio.Task[None]] = []
        outbound.on_close(self._connection_lost)

    def __repr__(self) -> str:
        up = sum(name_server.up is True for name_server in self._name_servers.values())
        return f"<Registrar {self._identity.broker_name} with {up} of {len(self._name_servers)} name servers>"

    @property
    def registered(self) -> bool:
        """Whether clients can find the broker: some name server has its registration."""
        return any(name_server.up for name_server in self._name_servers.values())

    def statistics(self) -> RegistrationStatistics:
        """How it stands with each name server now."""
        return RegistrationStatistics(name_servers=tuple(each.state() for each in self._name_servers.values()))

    def start(self) -> None:
        """Begin to register; `register_now` waits for the outcome of the first attempts."""
        self._tasks = [asyncio.ensure_future(self._keep_registered(each)) for each in self._name_servers.values()]

    def changed(self) -> None:
        """Something that is registered has changed: tell every name server, without waiting."""
        for name_server in self._name_servers.values():
            name_server.due.set()

    async def register_now(self) -> None:
        """Tell every name server; returns when each knows what is true now, or is down."""
        self.changed()
        loop = asyncio.get_running_loop()
        told = []
        for name_server in self._name_servers.values():
            if name_server.up is not False:
                future = loop.create_future()
                name_server.waiting.append(future)
                told.append(future)
        if told:
            await asyncio.wait(told)

    async def stop(self) -> None:
        """Unregister from the name servers that can be reached."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._unregister(each) for each in self._name_servers.values() if each.up))
        for name_server in self._name_servers.values():
            name_server.up = False
            release(name_server.waiting)

    # ------------------------------------------------------------------------------------------ one name server

    async def _keep_registered(self, name_server: _NameServer) -> None:
        pause_s = self._timing.first_repeat_s
        while True:
            await self._attempt(name_server)
            if name_server.up:
                await _until_due(name_server, pause_s)
                pause_s = self._timing.period_s
            if not name_server.up:
                await asyncio.sleep(self._timing.retry_s)

    async def _attempt(self, name_server: _NameServer) -> None:
        name_server.due.clear()
        told, name_server.waiting = name_server.waiting, []
        try:
            await self._register(name_server.address)
        except (OSError, RefusedError) as error:
            name_server.failures += 1
            name_server.went_down(str(error))
        except Exception as error:
            log.exception("registration failed name_server=%s", name_server.address)
            name_server.failures += 1
            name_server.went_down(str(error))
        else:
            name_server.came_up()
        finally:
            release(told)

    async def _register(self, address: str) -> None:
        body = self._body()
        header = msgspec.structs.replace(self._identity, body_crc32=zlib.crc32(body) & CRC_MASK)
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        answer = await self._outbound.invoke(address, request, self._timing.register_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(f"refused with code {answer.code}: {answer.remark}")

    async def _unregister(self, name_server: _NameServer) -> None:
        identity = self._identity
        header = BrokerHeader(identity.broker_name, identity.broker_addr, identity.cluster_name, identity.broker_id)
        request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header)
        try:
            await self._outbound.invoke(name_server.address, request, self._timing.unregister_timeout_s)
        except OSError as error:
            log.warning("not unregistered name_server=%s reason=%s", name_server.address, error)
        else:
            log.info("unregistered name_server=%s", name_server.address)

    def _connection_lost(self, address: str) -> None:
        name_server = self._name_servers.get(address)
        if name_server is not None and name_server.up:
            name_server.went_down("its connection was lost")
            name_server.due.set()


async def _until_due(name_server: _NameServer, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await name_server.due.wait()
    except TimeoutError:
        pass  # nothing happened: time for the next registration of the period


def release(futures: Sequence[asyncio.Future[None]]) -> None:
    """Let everybody go on who waits for one of `futures`."""
    for future in futures:
        if not future.done():
            future.set_result(None)
