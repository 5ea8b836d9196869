"""The offsets of consumer groups: progress, resets by time, and copies from group to group.

    progress = await admin.offsets.progress("billing")
    await admin.offsets.reset("billing", "Orders", timestamp_ms)

A reset is one request to each broker of the topic (INVOKE_BROKER_TO_RESET_OFFSET, 222). A broker that leaves the reset
to the members of the group (RocketMQ 4.9) responds CONSUMER_NOT_ONLINE (206) if there are none; then `roll_back` sets
the offset of each queue by itself. Source: docs/reference/wire.md, "Resetting offsets", "Statistics of topics and
groups".
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from skylarkmq.clients.sdk.admin.group_config import brokers_of_group
from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.arguments import check_group, check_offset, check_queue, check_type, time_ms
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute, reading_response
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicStatsTable
from skylarkmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.hash_order import queue_bucket_order
from skylarkmq.protocol.headers.client_calls import ResetOffsetHeader
from skylarkmq.protocol.headers.consumer import UpdateConsumerOffsetHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader, QueueHeader, SearchOffsetHeader
from skylarkmq.protocol.headers.stats import ConsumeStatsHeader
from skylarkmq.protocol.headers.topic import TopicHeader

TO_END: Final = -1
"""The timestamp of a reset to the end of each queue."""
_STATS_TIMEOUT_S: Final = 15.0
_ALL_QUEUES: Final = -1
_NO_OFFSET: Final = -1


class Rollback(msgspec.Struct, frozen=True):
    """A queue whose offset `roll_back` set, or kept. `timestamp_offset`: of the first message at or after the time."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    new_offset: int


class Offsets:
    """The section `Admin.offsets`. Addresses are `host:port`, times Unix milliseconds; `TO_END` (-1): the queue's end.

    `route_of`: the topic whose route names the brokers, for topics without their own route (light message queues).
    """

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<Offsets {self._requests.client}>"

    # ------------------------------------------------------------------------------------------------------- progress

    async def progress(
        self, group: str, topic: str | None = None, *, route_of: str | None = None, timeout_s: float | None = None
    ) -> ConsumeStats:
        """Return the offsets of a group in each queue, and its rate of consumption.

        `topic` None: in all topics in which it has offsets; if it has members, of those that they subscribe to. The
        requests go to the brokers of the group's retry topic; if no broker has it, to the brokers of `topic`.
        """
        check_group(group)
        total = ConsumeStats()
        code, header = RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(consumer_group=group, topic=topic)
        async with self._requests.within(timeout_s, "progress"):
            for address in await self._brokers(group, topic, route_of):
                stats = await self._requests.read(ConsumeStats, address, code, header, timeout_s=_STATS_TIMEOUT_S)
                total.offset_table |= stats.offset_table
                total.consume_tps += stats.consume_tps
        return total

    async def of_group(
        self, group: str, topic: str | None = None, *, timeout_s: float | None = None
    ) -> dict[MessageQueue, OffsetWrapper]:
        """Return the committed offset of a group, and the next offset of the broker, for each queue of a topic.

        `topic` None: of all topics in which the group has offsets; if it has members, of those that they subscribe to.
        The requests go to the brokers of the topic; without a topic, to all masters.
        """
        check_group(group)
        if topic is not None:
            check_type("topic", topic, str)
        table: dict[MessageQueue, OffsetWrapper] = {}
        code, header = RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(consumer_group=group, topic=topic)
        async with self._requests.within(timeout_s, "of_group"):
            requests = self._requests
            for address in await (requests.master_addresses() if topic is None else requests.addresses_of(topic)):
                table |= (await requests.read(ConsumeStats, address, code, header)).offset_table
        return dict(sorted(table.items()))

    async def lag(self, group: str, topic: str, *, timeout_s: float | None = None) -> int:
        """Return how many messages of a topic the group has not acknowledged."""
        offsets = await self.of_group(group, topic, timeout_s=timeout_s)
        return sum(row.broker_offset - row.consumer_offset for row in offsets.values())

    async def commit(self, group: str, queue: MessageQueue, offset: int, *, timeout_s: float | None = None) -> None:
        """Commit an offset for a group. Running members keep their positions: see `reset_to`.

        After a reset the broker ignores commits, also this one, until a member of the group pulls from the queue; this
        holds for RocketMQ 5.3, too. To move such a group once more, use `reset_queue`.
        """
        check_group(group)
        check_queue(queue)
        check_offset(offset)
        async with self._requests.within(timeout_s, "commit"):
            await QueueCalls(self._requests.client, group).commit(queue, offset)

    async def _brokers(self, group: str, topic: str | None, route_of: str | None) -> list[str]:
        try:
            return await brokers_of_group(self._requests, group)
        except NoRoute:
            if topic is None:
                raise
        try:
            return await self._requests.addresses_of(topic)
        except NoRoute:
            if route_of is None:
                raise
        return await self._requests.addresses_of(route_of)

    # --------------------------------------------------------------------------------------------------------- resets

    async def reset_to(
        self, group: str, topic: str, to: datetime | None = None, *, timeout_s: float | None = None
    ) -> dict[MessageQueue, int]:
        """Move a group, and its running members, to the first message stored at or after `to`; None: to the end.

        Returns the new offsets.
        """
        check_group(group)
        check_type("topic", topic, str)
        timestamp = TO_END if to is None else time_ms("to", to)
        header = ResetOffsetHeader(group=group, topic=topic, timestamp=timestamp, is_force="true")
        table: dict[MessageQueue, int] = {}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        async with self._requests.within(timeout_s, "reset_to"):
            for address in await self._requests.addresses_of(topic):
                table |= (await self._requests.read(ResetOffsets, address, code, header)).offset_table
        return dict(sorted(table.items()))

    async def reset(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        to_cpp_clients: bool = False,
        route_of: str | None = None,
        timeout_s: float | None = None,
    ) -> dict[MessageQueue, int]:
        """Move a group, and its running members, to a time; return the new offsets.

        `force` False: a broker of RocketMQ 4.9 moves no queue forward. `to_cpp_clients`: such a broker sends the
        members the form of the offsets that C++ clients read. BrokerError with CONSUMER_NOT_ONLINE (206): see
        `roll_back`.
        """
        check_group(group)
        check_type("topic", topic, str)
        header = ResetOffsetHeader(
            group, topic, timestamp_ms, is_force=str(force).lower(), queue_id=_ALL_QUEUES, offset=_NO_OFFSET
        )
        table: dict[MessageQueue, int] = {}
        async with self._requests.within(timeout_s, "reset"):
            for address in await self._requests.addresses_of(topic if route_of is None else route_of):
                table |= await self._reset(address, header, to_cpp_clients=to_cpp_clients)
        return table

    async def _reset(self, address: str, header: ResetOffsetHeader, *, to_cpp_clients: bool) -> dict[MessageQueue, int]:
        """Request the reset from one broker; the language in the request selects the form for the members."""
        code, client = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._requests.client
        request = RemotingCommand.request(code, header)
        if to_cpp_clients:
            request.language = LanguageCode.CPP.name
        connection = await client.brokers.get(address)
        response = await connection.invoke(request, client.settings.request_timeout_s)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError.of(code, response.code, response.remark, f"broker {address}", header.topic)
        with reading_response(code, f"broker {address}", header.topic):
            return ResetOffsets.decode(response.body).offset_table if response.body else {}

    async def reset_or_roll_back(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        to_cpp_clients: bool = False,
        route_of: str | None = None,
        timeout_s: float | None = None,
    ) -> dict[MessageQueue, int] | list[Rollback]:
        """Return the offsets of `reset`, or of `roll_back` if a broker leaves resets to members and the group has none.

        Arguments are the same as for `reset`; `timeout_s` limits each of the two.
        """
        try:
            return await self.reset(
                group,
                topic,
                timestamp_ms,
                force=force,
                to_cpp_clients=to_cpp_clients,
                route_of=route_of,
                timeout_s=timeout_s,
            )
        except BrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
        return await self.roll_back(group, topic, timestamp_ms, force=force, route_of=route_of, timeout_s=timeout_s)

    async def reset_queue(
        self, address: str, group: str, topic: str, queue_id: int, offset: int, *, timeout_s: float | None = None
    ) -> None:
        """Commit an offset for one queue, and move the running members to it."""
        check_group(group)
        check_type("topic", topic, str)
        commit = UpdateConsumerOffsetHeader(group, topic, queue_id, offset)
        header = ResetOffsetHeader(group, topic, 0, is_force="false", queue_id=queue_id, offset=offset)
        async with self._requests.within(timeout_s, "reset_queue"):
            await self._requests.send(address, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            await self._requests.send(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def at_time(
        self, address: str, topic: str, queue_id: int, timestamp_ms: int, *, timeout_s: float | None = None
    ) -> int:
        """Return the offset of the first message of a queue that was stored at or after a time; `TO_END`: its end."""
        check_type("topic", topic, str)
        async with self._requests.within(timeout_s, "at_time"):
            return await self._at_time(address, topic, queue_id, timestamp_ms)

    async def _at_time(self, address: str, topic: str, queue_id: int, timestamp_ms: int) -> int:
        read = self._requests.read_header
        if timestamp_ms == TO_END:
            at_end = QueueHeader(topic=topic, queue_id=queue_id)
            return (await read(OffsetResponseHeader, address, RequestCode.GET_MAX_OFFSET, at_end)).offset
        header = SearchOffsetHeader(topic=topic, queue_id=queue_id, timestamp=timestamp_ms)
        return (await read(OffsetResponseHeader, address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)).offset

    async def roll_back(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        route_of: str | None = None,
        timeout_s: float | None = None,
    ) -> list[Rollback]:
        """Commit the offset of a time for each queue, for a group without members: running members ignore it.

        `force` False: no queue is moved forward.
        """
        check_group(group)
        check_type("topic", topic, str)
        rows: list[Rollback] = []
        async with self._requests.within(timeout_s, "roll_back"):
            for address in await self._requests.addresses_of(topic if route_of is None else route_of):
                for queue, row in (await self._offsets_at(address, group, topic)).items():
                    target = await self._at_time(address, topic, queue.queue_id, timestamp_ms)
                    is_moved = force or target <= row.consumer_offset
                    new = target if is_moved else row.consumer_offset
                    rows.append(Rollback(queue, row.broker_offset, row.consumer_offset, target, new))
                    if is_moved:
                        await self._commit(address, group, queue, target)
        return rows

    async def _offsets_at(self, address: str, group: str, topic: str) -> Mapping[MessageQueue, OffsetWrapper]:
        """Return the group's offsets in a topic on one broker; without committed offsets, the first offsets."""
        header = ConsumeStatsHeader(consumer_group=group)
        stats = await self._requests.read(
            ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header, timeout_s=_STATS_TIMEOUT_S
        )
        ordered = queue_bucket_order(stats.offset_table)  # as RocketMQ's tool lists them
        consumed = {queue: stats.offset_table[queue] for queue in ordered if queue.topic == topic}
        if consumed:
            return consumed
        code = RequestCode.GET_TOPIC_STATS_INFO
        queues = await self._requests.read(TopicStatsTable, address, code, TopicHeader(topic=topic))
        return {
            queue: OffsetWrapper(broker_offset=row.max_offset, consumer_offset=row.min_offset)
            for queue, row in sorted(queues.offset_table.items())
        }

    # --------------------------------------------------------------------------------------------------------- copies

    async def clone(self, source: str, target: str, topic: str, *, timeout_s: float | None = None) -> int:
        """Commit all offsets of group `source` for group `target`, on the brokers of a topic; return how many.

        As RocketMQ's tool, it copies the offsets of all topics in which `source` has some.
        """
        check_group(source)
        check_group(target)
        check_type("topic", topic, str)
        table = (await self.progress(source, timeout_s=timeout_s)).offset_table
        copied = {queue: row.consumer_offset for queue, row in table.items() if row.consumer_offset >= 0}
        async with self._requests.within(timeout_s, "clone"):
            route = await self._requests.client.routes.reload(topic)
            for queue, offset in copied.items():
                await self._commit(route.address(queue.broker_name), target, queue, offset)
        return len(copied)

    async def _commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetHeader(group, queue.topic, queue.queue_id, offset, bname=queue.broker_name)
        await self._requests.send(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
