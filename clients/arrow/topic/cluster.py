"""Metadata that the driver reads from a cluster: queues, offsets and broker addresses; and offset commits.

`Cluster` is a blocking wrapper around one long-lived SDK client. Requests about many queues run concurrently. The
results omit the queues of a broker that is *unreachable*; the caller decides whether to wait, to continue, or to fail.

For a search by time, newer brokers (and ours) return the first message stored at that time or later. A RocketMQ 4.9
broker may return the nearest message, or the last one. So each result is checked against the store timestamps and, if
it is not the first match, corrected by a search. Source: docs/reference/wire.md, "Queues", "Consumer offsets";
docs/reference/disk.md, "Offset by time".
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from skylarkmq.clients.arrow.topic.options import ClusterOptions, TopicOptions
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.arrow.topic.topic_names import is_selected
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, NoRoute, reading_response
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.sdk.connection.topic_route import checked_cluster
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.protocol.bodies.cluster import ClusterInfo, TopicList
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode

MAX_CONCURRENT: Final = 256
"""Maximum number of concurrent requests."""

UNREACHABLE: Final = (*TRANSPORT_ERRORS, NoRoute)
_RETRIED: Final = frozenset({
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.GO_AWAY,
})  # fmt: skip

T = TypeVar("T")
log = logging.getLogger(__name__)


class Cluster:
    """The cluster that the options name. The client stays open until `close`, or until the process ends."""

    def __init__(self, options: TopicOptions) -> None:
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
        """Return the readable queues that the options select.

        Raises BrokerError, or an error of UNREACHABLE except NoRoute.
        """
        return run(self._queues())

    def brokers(self) -> set[str]:
        """Return the names of all registered brokers."""
        return set(run(self._cluster()).broker_addr_table)

    def addresses(self, names: Iterable[str]) -> dict[str, str]:
        """Return broker name -> address, for the brokers of `names` that are registered."""
        table = run(self._cluster()).broker_addr_table
        found = {name: table[name].broker_addrs for name in names if name in table}
        return {name: by_id[min(by_id)] for name, by_id in found.items() if by_id}

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the first offset of each queue; queues of unreachable brokers are omitted."""
        return run(self._of_each(queues, self._calls.min_offset))

    def end_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the end offset (of the next message) of each queue; queues of unreachable brokers are omitted."""
        return run(self._of_each(queues, self._calls.max_offset))

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        """Return each queue's first offset stored at its time (ms) or later; None: the queue has no such message."""

        async def at(queue: MessageQueue) -> int | None:
            return await self._first_at(queue, times[queue])

        return run(self._of_each(times, at))

    def commit(self, positions: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Commit these offsets for the options' group; return the queues whose commit failed (failures are logged)."""

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
        """Return the topics that match the option subscribePattern."""
        name_servers = self._client.routes.name_servers
        body = await name_servers.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        with reading_response(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "a name server"):
            listed = TopicList.decode(body).topic_list
        info = await self._cluster()
        own = info.broker_addr_table.keys() | info.cluster_addr_table.keys()
        return [topic for topic in listed if is_selected(topic, self._options.subscribe_pattern or "", own)]

    async def _cluster(self) -> ClusterInfo:
        name_servers = self._client.routes.name_servers
        return checked_cluster(await name_servers.request(RequestCode.GET_BROKER_CLUSTER_INFO))

    # -------------------------------------------------------------------------------------------------------- offsets

    async def _of_each(
        self, queues: Iterable[MessageQueue], request: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        limit = asyncio.Semaphore(MAX_CONCURRENT)
        unreachable: dict[str, ClientError] = {}

        async def one(queue: MessageQueue) -> tuple[MessageQueue, T] | None:
            async with limit:
                if queue.broker_name in unreachable:
                    return None
                try:
                    return queue, await self._retried(lambda: request(queue))
                except UNREACHABLE as error:
                    if unreachable.setdefault(queue.broker_name, error) is error:
                        log.warning(
                            "broker is unreachable, its queues are omitted broker=%s error=%s", queue.broker_name, error
                        )
                    return None

        results = await asyncio.gather(*(one(queue) for queue in sorted(queues)))
        return dict(result for result in results if result is not None)

    async def _retried(self, request: Callable[[], Awaitable[T]]) -> T:
        for _ in range(self._options.lookup_retries):
            try:
                return await request()
            except BrokerError as error:
                if error.code not in _RETRIED:
                    raise
            await asyncio.sleep(self._options.lookup_interval_ms / 1000)
        return await request()

    async def _first_at(self, queue: MessageQueue, time_ms: int) -> int | None:
        first, end = await self._calls.min_offset(queue), await self._calls.max_offset(queue)
        guess = await self._calls.offset_at(queue, time_ms)

        async def stored_ms(offset: int) -> int:
            messages, _ = await self._calls.read(queue, offset, 1)
            return messages[0].store_timestamp if messages else -1  # a deleted message counts as older than any time

        found = await first_stored_at(stored_ms, time_ms, guess, first, end)
        return None if found == end else found

    async def _committed(self, queue: MessageQueue, offset: int) -> bool:
        try:
            try:
                await self._calls.commit(queue, offset)
            except BrokerError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                await self._calls.read(queue, offset, 1)  # a pull creates the group, if the broker allows that
                await self._calls.commit(queue, offset)
        except UNREACHABLE:
            raise  # skips the other queues of that broker
        except ClientError as error:
            log.warning("offset commit failed queue=%s offset=%d error=%s", queue, offset, error)
            return False
        return True


async def first_stored_at(
    stored_ms: Callable[[int], Awaitable[int]], time_ms: int, guess: int, first: int, end: int
) -> int:
    """Return the first offset of [first, end) stored at `time_ms` or later, or `end`.

    Store timestamps never decrease along a queue. A correct `guess` takes two lookups; otherwise the search moves away
    from it in steps that double, and then bisects.
    """

    async def is_older(offset: int) -> bool:
        return await stored_ms(offset) < time_ms

    low, high = first, end  # offsets before `low` are older; `high` is not older, or is the end
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
    """Return the current address of a broker by its name. Raises ClientError."""
    client = Client(options.name_server, options.client_settings())
    try:
        body = await client.routes.name_servers.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    finally:
        await client.close()
    broker = checked_cluster(body).broker_addr_table.get(name)
    if broker is None or not broker.broker_addrs:
        raise NoRoute(f"broker {name} is not registered: check that it runs and uses this name server", broker=name)
    return broker.broker_addrs[min(broker.broker_addrs)]
