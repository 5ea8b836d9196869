"""The cluster as one caller sees it: an Admin with the caller's credentials, lists that are kept for seconds, rates.

Lists of 100,000 names take a broker and this process some 100 ms, so a list is kept for LIST_AGE_S, and refreshed
sooner after a change that this console has made. Calls that need the same list wait for the same read, and a read that
fails is an error of each of them: with a broker that does not respond, no page waits longer than one read.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from skylarkmq.clients.console.jobs import Jobs
from skylarkmq.clients.console.rates import RateHistory
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.topic_kinds import KINDS, kind_of
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig

LIST_AGE_S: Final = 10.0
CONSOLE_GROUP: Final = "SKYLARK_CONSOLE"
"""The producer group of test messages and of dead letters that are sent again."""
ALL: Final = "all"
SLICE: Final = 500
"""Names that are handled without a pause: less than 0.5 ms."""

T = TypeVar("T")


class Target(NamedTuple):
    """Where a cluster is: `host:port;host:port` of its name servers."""

    name_servers: str
    tls: TlsSettings | ssl.SSLContext | None = None


class Cluster:
    """A cluster for one caller. `start` opens no connection; `close` ends all of them."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.rates = RateHistory()
        self.jobs = Jobs()
        self._topics = _Kept(self._read_topics)
        self._groups = _Kept(admin.groups)
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Cluster {self.admin!r}>"

    @classmethod
    def at(cls, target: Target, credentials: Credentials | None) -> "Cluster":
        """Return the cluster for a caller with these credentials; None: requests are not signed."""
        return cls(Admin(namesrv=target.name_servers, tls=target.tls, credentials=credentials))

    async def start(self) -> None:
        """Start the client."""
        await self.admin.start()

    async def close(self) -> None:
        """End the jobs, and close all connections."""
        await self.jobs.stop()
        if self._producer is not None:
            await self._producer.stop()
        await self.admin.stop()

    async def topics(self) -> Mapping[str, list[str]]:
        """Return the names of all topics by kind, each list sorted; ALL has all of them."""
        return await self._topics.value()

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups by name, sorted."""
        return await self._groups.value()

    async def _read_topics(self) -> Mapping[str, list[str]]:
        names = await self.admin.topics()
        by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS} | {ALL: names}
        async for part in sliced(names):
            for name in part:
                by_kind[kind_of(name)].append(name)
        return by_kind

    def changed(self) -> None:
        """Read the lists again at their next use."""
        self._topics.forget()
        self._groups.forget()

    async def producer(self) -> Producer:
        """Return the producer of this console."""
        async with self._starting:
            if self._producer is None:
                producer = Producer(CONSOLE_GROUP, client=self.admin.client)
                await producer.start()
                self._producer = producer
        return self._producer


class _Kept(Generic[T]):
    """A value that is read at most every LIST_AGE_S. A read that was begun before `forget` is not used after it."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._begun_s = 0.0
        self._reading: asyncio.Future[T] | None = None

    def forget(self) -> None:
        self._reading = None

    async def value(self) -> T:
        reading, now_s = self._reading, time.monotonic()
        if reading is None or (reading.done() and (_has_failed(reading) or now_s - self._begun_s > LIST_AGE_S)):
            self._begun_s = now_s
            reading = self._reading = asyncio.ensure_future(self._read())
        return await asyncio.shield(reading)


def _has_failed(reading: asyncio.Future[Any]) -> bool:
    return reading.cancelled() or reading.exception() is not None


async def sliced(names: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield a list in slices, between which other tasks run: a broker may serve messages in the same event loop."""
    for start in range(0, len(names), SLICE):
        yield names[start : start + SLICE]
        await asyncio.sleep(0)


async def containing(names: Sequence[str], text: str) -> Sequence[str]:
    """Return the names that contain a text, regardless of case."""
    lower = text.lower()
    return [name async for part in sliced(names) for name in part if lower in name.lower()] if lower else names
