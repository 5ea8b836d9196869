"""Registration: keeps the broker registered with each of its name servers.

One task per name server registers at once, again after ten seconds, then once per period, and after each change. All
changes of one event-loop iteration are sent together: reporting a change only wakes the tasks, which then send the
current topics. A registration always contains the whole table, so losing one loses no data.

    up ──(connection lost, refused, no response)──> down ──(every second: connect, register)──> up

When a name server goes down and when it is back, one line is logged. Callers do not wait for a name server that is
down, since it gets the whole table when it is back. Its lost connection wakes the task, so a restarted name server has
its routes again after about a second.

The response to a broker with an id above 0 has the addresses of the live master of its name. `master` is the master of
the first name server that has one. Source: docs/reference/wire.md, "Name server".
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
from skylarkmq.protocol.headers.namesrv import BrokerHeader, RegisterBrokerHeader, RegisterBrokerResponseHeader

CRC_MASK: Final = 0x7FFF_FFFF
MIN_PERIOD_S: Final = 10.0
MAX_PERIOD_S: Final = 60.0

log = logging.getLogger(__name__)


class RegistrationTiming(msgspec.Struct, frozen=True):
    """Times in seconds."""

    period_s: float = 30.0  # registerNameServerPeriod
    first_repeat_s: float = 10.0  # the name server may have been starting at the same time
    retry_s: float = 1.0  # between attempts while a name server is down
    register_timeout_s: float = 24.0  # registerBrokerTimeoutMills
    unregister_timeout_s: float = 3.0  # short, so that a stop does not take long

    @classmethod
    def every(cls, period_ms: int) -> Self:
        """Return the default timing with another period, limited to 10 s to 60 s as in RocketMQ."""
        return cls(period_s=min(max(period_ms / 1000, MIN_PERIOD_S), MAX_PERIOD_S))


class NameServerState(msgspec.Struct, frozen=True):
    """The state of one name server; `failure` is the reason why the broker is not registered there, if it is not.

    `registrations` and `failures` count attempts since the start.
    """

    address: str
    registered: bool
    registrations: int
    failures: int
    failure: str | None


class RegistrationStatistics(msgspec.Struct, frozen=True):
    """The state of all name servers."""

    name_servers: tuple[NameServerState, ...]


class RefusedError(Exception):
    """A name server rejected a registration."""


class _NameServer:
    """The registrar's state of one name server. `up` is None until the first attempt has ended."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.up: bool | None = None
        self.failure: str | None = None
        self.registrations = 0
        self.failures = 0
        self.due = asyncio.Event()
        self.waiting: list[asyncio.Future[None]] = []
        self.master = RegisterBrokerResponseHeader()

    def state(self) -> NameServerState:
        return NameServerState(
            address=self.address,
            registered=self.up is True,
            registrations=self.registrations,
            failures=self.failures,
            failure=self.failure,
        )

    def mark_up(self) -> None:
        if not self.up:
            log.info("registered name_server=%s", self.address)
        self.up = True
        self.failure = None
        self.registrations += 1

    def mark_down(self, reason: str) -> None:
        """Record a failure, and end the wait of callers."""
        if self.up is not False:
            log.warning("not registered name_server=%s reason=%s", self.address, reason)
        self.up = False
        self.failure = str(reason)
        resolve(self.waiting)
        self.waiting = []


class Registrar:
    """Keeps one broker registered.

    `identity` contains the broker's names and addresses; `body` returns the current encoded RegisterBrokerBody. Raises
    ValueError for an invalid address.

    Set by `Following`, on a slave: `on_registered`. `Following` is made with the registrar, because it reads `master`.
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
        self.on_registered: Callable[[], None] = lambda: None
        """Called after each registration; `master` may have changed."""
        outbound.on_close(self._connection_lost)

    def __repr__(self) -> str:
        up = sum(name_server.up is True for name_server in self._name_servers.values())
        return f"<Registrar {self._identity.broker_name} with {up} of {len(self._name_servers)} name servers>"

    @property
    def registered(self) -> bool:
        """Return whether clients can find the broker: at least one name server has its registration."""
        return any(name_server.up for name_server in self._name_servers.values())

    @property
    def master(self) -> RegisterBrokerResponseHeader:
        """The addresses of the master of this name, for a broker with an id above 0; without fields: none is known."""
        known = (each.master for each in self._name_servers.values() if each.up and each.master.master_addr)
        return next(known, RegisterBrokerResponseHeader())

    def statistics(self) -> RegistrationStatistics:
        """Return the current state of each name server."""
        return RegistrationStatistics(name_servers=tuple(each.state() for each in self._name_servers.values()))

    def start(self) -> None:
        """Start to register; `register_now` waits for the first attempts."""
        self._tasks = [asyncio.ensure_future(self._keep_registered(each)) for each in self._name_servers.values()]

    def changed(self) -> None:
        """Register changed data with every name server, without waiting."""
        for name_server in self._name_servers.values():
            name_server.due.set()

    async def register_now(self) -> None:
        """Register with every name server; return when each has the current data, or is down."""
        self.changed()
        loop = asyncio.get_running_loop()
        waiting = []
        for name_server in self._name_servers.values():
            if name_server.up is not False:
                future = loop.create_future()
                name_server.waiting.append(future)
                waiting.append(future)
        if waiting:
            await asyncio.wait(waiting)

    async def stop(self) -> None:
        """Unregister from the name servers that can be reached."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._unregister(each) for each in self._name_servers.values() if each.up))
        for name_server in self._name_servers.values():
            name_server.up = False
            resolve(name_server.waiting)

    # -------------------------------------------------------------------------------------------------- one name server

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
        waiting, name_server.waiting = name_server.waiting, []
        try:
            name_server.master = await self._register(name_server.address)
        except (OSError, RefusedError) as error:
            name_server.failures += 1
            name_server.mark_down(str(error))
        except Exception as error:
            log.exception("registration failed name_server=%s", name_server.address)
            name_server.failures += 1
            name_server.mark_down(str(error))
        else:
            name_server.mark_up()
            self.on_registered()
        finally:
            resolve(waiting)

    async def _register(self, address: str) -> RegisterBrokerResponseHeader:
        body = self._body()
        header = msgspec.structs.replace(self._identity, body_crc32=zlib.crc32(body) & CRC_MASK)
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        response = await self._outbound.invoke(address, request, self._timing.register_timeout_s)
        if response.code != ResponseCode.SUCCESS:
            raise RefusedError(f"refused with code {response.code}: {response.remark}")
        return response.header(RegisterBrokerResponseHeader)

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
            name_server.mark_down("connection lost")
            name_server.due.set()


async def _until_due(name_server: _NameServer, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await name_server.due.wait()
    except TimeoutError:
        pass  # no change: the period is over


def resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    """Complete `futures`, so that their callers continue."""
    for future in futures:
        if not future.done():
            future.set_result(None)
