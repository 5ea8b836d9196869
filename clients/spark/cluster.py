"""What the planning side asks of a cluster: which queues there are, where they begin and end, and who reads where.

`Cluster` is one long-lived client of the SDK behind calls that block. Answers about many queues are asked for all at
once. A broker that cannot be reached is *away*: what it would have said is missing from the answer, and the caller
decides whether to wait, to go on without, or to fail.

A broker of RocketMQ 4.9 answers a search by time with the nearest message, or the last, where newer ones (and ours)
answer with the first that is not older. So every such answer is compared with store times, and put right by a search of
our own where it is not the first. Source: docs/formats.md, "Queues", "Offset by time", "Consumer offsets".
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from skylarkmq.clients.background_loop import run
from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.connection.topic_route import checked_cluster
from skylarkmq.clients.consuming.queue_calls import QueueCalls
from skylarkmq.clients.errors import BrokerError, ClientError, NoRoute, reading_response
from skylarkmq.clients.spark.cluster_options import ClusterOptions
from skylarkmq.clients.spark.source.offsets import Positions
from skylarkmq.clients.spark.source.source_options import SourceOptions
from skylarkmq.clients.spark.topic_names import is_meant
from skylarkmq.protocol.bodies.cluster import ClusterInfo, TopicList
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode

AT_ONCE: Final = 256
"""Requests in flight at a time."""

AWAY: Final = (*TRANSPORT_ERRORS, NoRoute)
_RETRIED: Final = frozenset({
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.GO_AWAY,
})  # fmt: skip

T = TypeVar("T")
log = logging.getLogger(__name__)


class Cluster:
    """The cluster of a reader's options. Lives as long as its process, or until `close`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

        async def made() -> Client:
            return Client(options.name_server, options.client_settings())

        self._client = run(made())
        self._calls = QueueCalls(self._client, options.pull_group)

    def __repr__(self) -> str:
        return f"<Cluster {self._client}>"

    def close(self) -> None:
        """Close all connections."""
        run(self._client.close())

    def queues(self) -> set[MessageQueue]:
        """The queues that the options mean, of those that can be read now. Errors of AWAY but NoRoute, BrokerError."""
        return run(self._queues())

    def brokers(self) -> set[str]:
        """The names of all brokers that are registered."""
        return set(run(self._cluster()).broker_addr_table)

    def addresses(self, names: Iterable[str]) -> dict[str, str]:
        """Where brokers listen, of those that are registered."""
        table = run(self._cluster()).broker_addr_table
        found = {name: table[name].broker_addrs for name in names if name in table}
        return {name: by_id[min(by_id)] for name, by_id in found.items() if by_id}

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """The first offset of each queue, but of brokers that are away."""
        return run(self._of_each(queues, self._calls.min_offset))

    def end_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """The offset that the next message of each queue will get, but of brokers that are away."""
        return run(self._of_each(queues, self._calls.max_offset))

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        """The first message of each queue that was stored at its time (ms) or later; None: there is none."""

        async def at(queue: MessageQueue) -> int | None:
            return await self._first_at(queue, times[queue])

        return run(self._of_each(times, at))

    def commit(self, positions: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Make these the offsets of the options' group; returns the queues for which that failed (it is logged)."""

        async def commit(queue: MessageQueue) -> bool:
            return await self._committed(queue, positions[queue])

        done = run(self._of_each(positions, commit))
        return [queue for queue in positions if not done.get(queue)]

    # --------------------------------------------------------------------------------------------------------- topics

    async def _queues(self) -> set[MessageQueue]:
        assign = self._options.assign
        if assign is not None:
            there = await self._queues_of({queue.topic for queue in assign})
            return there & set(assign)
        return await self._queues_of(self._options.subscribe or await self._matching())

    async def _queues_of(self, topics: Iterable[str]) -> set[MessageQueue]:
        routes = await asyncio.gather(*(self._readable(topic) for topic in topics))
        return {queue for queues in routes for queue in queues}

    async def _readable(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return (await self._client.routes.reload(topic)).subscribe_queues
        except NoRoute:
            return ()

    async def _matching(self) -> list[str]:
        """The topics that the pattern means."""
        name_servers = self._client.routes.name_servers
        body = await name_servers.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        with reading_response(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "a name server"):
            listed = TopicList.decode(body).topic_list
        info = await self._cluster()
        own = info.broker_addr_table.keys() | info.cluster_addr_table.keys()
        return [topic for topic in listed if is_meant(topic, self._options.subscribe_pattern or "", own)]

    async def _cluster(self) -> ClusterInfo:
        name_servers = self._client.routes.name_servers
        return checked_cluster(await name_servers.ask(RequestCode.GET_BROKER_CLUSTER_INFO))

    # -------------------------------------------------------------------------------------------------------- offsets

    async def _of_each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        turns = asyncio.Semaphore(AT_ONCE)
        away: dict[str, ClientError] = {}

        async def one(queue: MessageQueue) -> tuple[MessageQueue, T] | None:
            async with turns:
                if queue.broker_name in away:
                    return None
                try:
                    return queue, await self._retried(lambda: ask(queue))
                except AWAY as error:
                    if away.setdefault(queue.broker_name, error) is error:
                        log.warning("broker is away, going on without it broker=%s error=%s", queue.broker_name, error)
                    return None

        answers = await asyncio.gather(*(one(queue) for queue in sorted(queues)))
        return dict(answer for answer in answers if answer is not None)

    async def _retried(self, ask: Callable[[], Awaitable[T]]) -> T:
        for _ in range(self._options.lookup_retries):
            try:
                return await ask()
            except BrokerError as error:
                if error.code not in _RETRIED:
                    raise
            await asyncio.sleep(self._options.lookup_interval_ms / 1000)
        return await ask()

    async def _first_at(self, queue: MessageQueue, time_ms: int) -> int | None:
        first, end = await self._calls.min_offset(queue), await self._calls.max_offset(queue)
        guess = await self._calls.offset_at(queue, time_ms)

        async def stored_ms(offset: int) -> int:
            messages, _ = await self._calls.read(queue, offset, 1)
            return messages[0].store_timestamp if messages else -1  # what is gone is older than everything

        found = await first_not_older(stored_ms, time_ms, guess, first, end)
        return None if found == end else found

    async def _committed(self, queue: MessageQueue, offset: int) -> bool:
        try:
            try:
                await self._calls.commit(queue, offset)
            except BrokerError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                await self._calls.read(queue, offset, 1)  # a pull makes the group, where brokers may do that
                await self._calls.commit(queue, offset)
        except AWAY:
            raise  # the others of that broker need not try
        except ClientError as error:
            log.warning("progress not told queue=%s offset=%d error=%s", queue, offset, error)
            return False
        return True


async def first_not_older(
    stored_ms: Callable[[int], Awaitable[int]], time_ms: int, guess: int, first: int, end: int
) -> int:
    """The first offset of [first, end) that was stored at `time_ms` or later, `end` if there is none.

    Times grow along a queue. Two looks if the guess is right; else steps that double, and halves.
    """

    async def is_older(offset: int) -> bool:
        return await stored_ms(offset) < time_ms

    low, high = first, end  # everything before low is older; high is not, or the end
    guess = max(first, min(guess, end))
    step = 1
    if guess < end and await is_older(guess):
        low = guess + 1
        while low < high and await is_older(probe := min(low + step, high) - 1):
            low, step = probe + 1, step * 2
        high = min(high, low + step - 1)
    else:
        high = guess
        while low < high and not await is_older(probe := max(high - step, low)):
            high, step = probe, step * 2
        low = max(low, high - step + 1)
    while low < high:
        middle = (low + high) // 2
        if await is_older(middle):
            low = middle + 1
        else:
            high = middle
    return low


async def broker_address(options: ClusterOptions, name: str) -> str:
    """Where a broker listens now, by its name. ClientError."""
    client = Client(options.name_server, options.client_settings())
    try:
        body = await client.routes.name_servers.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    finally:
        await client.close()
    broker = checked_cluster(body).broker_addr_table.get(name)
    if broker is None or not broker.broker_addrs:
        raise NoRoute(f"broker {name} is not registered: check that it runs, and which name server it has", broker=name)
    return broker.broker_addrs[min(broker.broker_addrs)]
