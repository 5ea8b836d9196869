"""A name server and brokers that keep messages in lists: the part of RocketMQ that a client needs.

A `Cluster` consists of peers (tests/clients/peer.py). A test replaces the handler of a request code with
`broker.on(...)`.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skylarkmq.protocol.bodies.heartbeat import ConsumerIdList, HeartbeatData
from skylarkmq.protocol.bodies.locks import LockedQueues, LockRequest
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import (
    ConsumerGroupHeader,
    QueryConsumerOffsetHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader, QueueHeader
from skylarkmq.protocol.headers.send import SendMessageResponseHeader, SendMessageV2Header
from skylarkmq.protocol.headers.send_back import SendBackHeader
from skylarkmq.protocol.message import MessageExt, decode_batch, encode_properties
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import decode, encode
from tests.clients.peer import Handler, Peer, PeerConnection, until

HOST = encode_host("127.0.0.1", 10911)


class Broker(Peer):
    """A broker with its queues, committed offsets, queue locks and group members."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.queues: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[PeerConnection, HeartbeatData] = {}
        self.locks: dict[MessageQueue, str] = {}
        self.by_position: dict[int, MessageExt] = {}
        self.arrival = asyncio.Event()
        self.on_lost = self._connection_lost
        scripts: dict[int, Handler] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumers,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.GET_MIN_OFFSET: lambda *_: RemotingCommand.response(ext=OffsetResponseHeader(offset=0)),
        }
        self.handlers.update(scripts)

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str = "",
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> int:
        """Append a message, and return its queue offset."""
        queue = self.queues[topic, queue_id]
        now_ms = time.time_ns() // 1_000_000
        position = len(self.by_position) * 1000
        record = encode(
            topic=topic,
            body=body,
            properties=properties.encode(),
            queue_id=queue_id,
            queue_offset=len(queue),
            physical_offset=position,
            born_timestamp=now_ms,
            born_host=HOST,
            store_timestamp=now_ms,
            store_host=HOST,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )
        queue.append(record)
        (self.by_position[position],) = decode(record)
        self.arrival.set()
        self.arrival = asyncio.Event()
        return len(queue) - 1

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offset of each queue id."""
        return {queue: offset for (g, t, queue), offset in self.offsets.items() if (g, t) == (group, topic)}

    def notify(self, group: str) -> None:
        """Send NOTIFY_CONSUMER_IDS_CHANGED (40) to the members of a group."""
        header = ConsumerGroupHeader(consumer_group=group)
        for connection, data in self.members.items():
            if any(consumer.group_name == group for consumer in data.consumer_data_set):
                connection.send(RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))

    def _heartbeat(self, connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        data = HeartbeatData.decode(request.body)
        old = self.members.get(connection)
        self.members[connection] = data
        groups = {consumer.group_name for consumer in data.consumer_data_set}
        for group in groups - ({consumer.group_name for consumer in old.consumer_data_set} if old else set()):
            self.notify(group)
        return RemotingCommand.response()

    def _unregister(self, connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        group = request.header(UnregisterClientHeader).consumer_group
        self.members.pop(connection, None)
        if group is not None:
            self.notify(group)
        return RemotingCommand.response()

    def _connection_lost(self, connection: PeerConnection) -> None:
        data = self.members.pop(connection, None)
        for consumer in data.consumer_data_set if data else ():
            self.notify(consumer.group_name)

    def _consumers(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        group = request.header(ConsumerGroupHeader).consumer_group
        ids = [d.client_id for d in self.members.values() if any(c.group_name == group for c in d.consumer_data_set)]
        return RemotingCommand.response(body=ConsumerIdList(ids).encode())

    def _send(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(SendMessageV2Header)
        body = bytes(request.body)
        records = (
            [(bytes(record.body), bytes(record.properties).decode()) for record in decode_batch(body)]
            if header.batch == "true"
            else [(body, header.properties)]
        )
        stored = [
            self.store(header.topic, header.queue_id, content, properties, header.sys_flag)
            for content, properties in records
        ]
        ids = ",".join(f"{offset:032X}" for offset in stored)
        ext = SendMessageResponseHeader(msg_id=ids, queue_id=header.queue_id, queue_offset=stored[0])
        return RemotingCommand.response(ext=ext)

    def _send_back(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        """Append the message to the retry topic or the dead letter topic, without the delay of a real broker."""
        header = request.header(SendBackHeader)
        message = self.by_position[header.offset]
        properties = {"RETRY_TOPIC": message.topic} | message.properties
        dead = header.delay_level < 0 or message.reconsume_times >= (header.max_reconsume_times or 16)
        topic = f"{'%DLQ%' if dead else '%RETRY%'}{header.group}"
        text = encode_properties(properties)
        self.store(topic, 0, message.body, text, reconsume_times=message.reconsume_times + 1)
        return RemotingCommand.response()

    def _lock(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        wanted = LockRequest.decode(request.body)
        owner = wanted.client_id
        locked = [queue for queue in wanted.mq_set if self.locks.setdefault(queue, owner) == owner]
        return RemotingCommand.response(body=LockedQueues(locked).encode())

    def _unlock(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        released = LockRequest.decode(request.body)
        for queue in released.mq_set:
            if self.locks.get(queue) == released.client_id:
                del self.locks[queue]
        return RemotingCommand.response()

    def _max_offset(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(QueueHeader)
        offset = len(self.queues[header.topic, header.queue_id])
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=offset))

    def _query_offset(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(QueryConsumerOffsetHeader)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, "not found")
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=offset))

    def _update_offset(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(UpdateConsumerOffsetHeader)
        assert header.queue_id is not None
        assert header.commit_offset is not None
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return RemotingCommand.response()

    async def _pull(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(PullMessageHeader)
        at = header.queue_offset
        queue = self.queues[header.topic, header.queue_id]
        if header.sys_flag & PullSysFlag.SUSPEND:
            try:
                async with asyncio.timeout(header.suspend_timeout_millis / 1000):
                    while at >= len(queue):
                        await self.arrival.wait()
            except TimeoutError:
                pass  # the suspend timeout of the request
        found = queue[at : at + header.max_msg_nums]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return RemotingCommand.response(code, ext=pulled(at + len(found), len(queue)), body=b"".join(found))


def pulled(next_offset: int, max_offset: int = 0) -> PullMessageResponseHeader:
    """Return the header of a response to PULL_MESSAGE (11)."""
    return PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=0, max_offset=max_offset
    )


class Cluster:
    """A name server and brokers. `topics` maps each topic to its number of queues on each broker."""

    def __init__(self, brokers: int) -> None:
        self.name_server = Peer()
        self.brokers = [Broker(f"broker-{'abcdef'[n]}") for n in range(brokers)]
        self.topics: dict[str, int] = {"T": 2}
        self.name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def broker(self) -> Broker:
        return self.brokers[0]

    def _route(self, _: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields()["topic"]
        count = self.topics.get(topic)
        if count is None:
            return RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info: {topic}")
        route = TopicRouteData(
            queue_datas=[QueueData(broker.name, count, count, 6) for broker in reversed(self.brokers)],
            broker_datas=[BrokerData("c", broker.name, {0: broker.address}) for broker in self.brokers],
        )
        return RemotingCommand.response(body=route.encode())

    def members(self, group: str) -> int:
        """Return the number of consumers of a group that are registered at the first broker."""
        return sum(
            any(consumer.group_name == group for consumer in data.consumer_data_set)
            for data in self.broker.members.values()
        )

    async def wait_committed(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Wait until the committed offsets at the first broker are exactly `offsets`: queue id -> offset."""
        await until(lambda: self.broker.committed(group, topic) == offsets, f"offsets {offsets}")


@asynccontextmanager
async def running_cluster(brokers: int = 1) -> AsyncIterator[Cluster]:
    """Yield a cluster whose name server and brokers listen."""
    cluster = Cluster(brokers)
    parts = [cluster.name_server, *cluster.brokers]
    for part in parts:
        await part.listen()
    try:
        yield cluster
    finally:
        for part in parts:
            await part.stop()
