"""The brokers of a replay: the `Cluster` of its senders, over the SDK's client.

A broker with autoCreateTopicEnable creates a topic at a send from the template topic that the request names. A topic
that is deleted during a replay must not come into existence again, with other queues. So the requests name a template
that every broker has and that creates nothing.
"""

import time
from collections.abc import Sequence
from typing import Final, Self

from skylarkmq.clients.sdk.base.errors import NoRoute
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.clients.sdk.messages.outgoing_message import Outgoing
from skylarkmq.clients.sdk.messages.send_result import SendResult
from skylarkmq.clients.sdk.producing.sends import Sends
from skylarkmq.clients.spark.replay.queue_senders import Copy
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import MessageExt, encode_batch

READ_AT_ONCE: Final = 256
SEND_TIMEOUT_S: Final = 10.0
NO_TEMPLATE: Final = SystemTopic.SELF_TEST


class Brokers:
    """Sends and reads for one group. Use inside `async with`; the client is started."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._calls = QueueCalls(client, group)
        self._sends = Sends(group, client, ProducerSettings(retries=0, default_topic=NO_TEMPLATE))

    def __repr__(self) -> str:
        return f"<Brokers {self._group}>"

    async def __aenter__(self) -> Self:
        self._client.join_as_producer(self._group)
        self._sends.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._sends.finish()
        finally:
            await self._client.leave_as_producer(self._group)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the writable queues of a topic, sorted. NoRoute if it has no writable queue."""
        queues = (await self._client.routes.find(topic)).publish_queues
        if not queues:
            raise NoRoute(f"topic {topic} has no queue to write to: check its permission", topic=topic)
        return queues

    async def send(self, queue: MessageQueue, copies: Sequence[Copy]) -> SendResult:
        """Store the copies in one request: several of them as a batch."""
        now_ms = time.time_ns() // 1_000_000
        first = copies[0]
        if len(copies) == 1:
            properties = first.properties.decode()
            outgoing = Outgoing(queue.topic, first.body, properties, "", now_ms, first.compression, first.flag)
        else:
            body = encode_batch(copies)
            outgoing = Outgoing(queue.topic, body, "", "", now_ms, first.compression, is_batch=True)
        return await self._sends.begin(outgoing, None, queue, SEND_TIMEOUT_S)

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset of a queue and its end."""
        return await self._calls.min_offset(queue), max(await self._calls.max_offset(queue), 0)

    async def read(self, queue: MessageQueue, offset: int) -> tuple[list[MessageExt], int | None]:
        """Return messages from an offset on and the offset to continue at; None: the end of the queue."""
        return await self._calls.read(queue, offset, READ_AT_ONCE)
