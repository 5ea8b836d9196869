"""Sends messages that a handler could not finish back to their broker, which redelivers them later.

    back      CONSUMER_SEND_MSG_BACK (36) to the broker of the message: it stores a copy in %RETRY%<group>, with a delay
              that grows with each redelivery
    resend    if that fails, and for orderly groups: the copy is made here and sent to %RETRY%<group>

The broker counts redeliveries: after `max_reconsume_times` it stores the message in %DLQ%<group>, and likewise if the
delay level is negative. A resent message has the properties of RocketMQ: RETRY_TOPIC, ORIGIN_MESSAGE_ID, DELAY. The
number of deliveries is in the header of the send. Source: docs/reference/wire.md, "Groups", "Send".
"""

import asyncio
import logging
from typing import Final

from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.consuming.later import TO_DEAD_LETTERS
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage
from skylarkmq.clients.sdk.messages.compression import COMPRESSION_BITS, DEFAULT_LEVELS, compress, compression_flags
from skylarkmq.protocol.codes import RETRY_PREFIX, RequestCode, SystemTopic
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.headers.send_back import SendBackHeader
from skylarkmq.protocol.message import MessageExt, PropertyName, encode_properties

FIRST_LEVEL: Final = 3

log = logging.getLogger(__name__)


class SendBack:
    """Sends back the messages of one group. `sent` is a total."""

    def __init__(
        self, client: Client, group: str, max_reconsume_times: int, namespace: Namespace = NO_NAMESPACE
    ) -> None:
        self.sent = 0
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<SendBack {self._group} sent={self.sent}>"

    async def back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Send a message back, one way or the other. Return False if both fail: this consumer still has the message."""
        queue = message.tracker.queue
        header = SendBackHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._namespace.wrap(message.topic),
            unit_mode="false",
            max_reconsume_times=self._max_reconsume_times,
            bname=queue.broker_name,
        )
        try:
            route = await self._client.routes.find(queue.topic)
            address = route.address(queue.broker_name)
            await self._client.request(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, topic=queue.topic)
        except ClientError as error:
            text = "negative acknowledgment failed, sending a copy to the retry topic msg_id=%s error=%s"
            log.warning(text, message.msg_id, error)
            dead = delay_level == TO_DEAD_LETTERS
            times = self._max_reconsume_times if dead else message.reconsume_times
            return await self.resend(message, times + 1, delay_level)
        self.sent += 1
        return True

    async def resend(self, message: MessageExt, reconsume_times: int, delay_level: int = 0) -> bool:
        """Send a copy to the retry topic, with this number of deliveries. Return False if that fails."""
        topic = RETRY_PREFIX + self._group
        properties = message.properties | {
            PropertyName.RETRY_TOPIC: self._namespace.wrap(message.topic),
            PropertyName.ORIGIN_MESSAGE_ID: message.properties.get(PropertyName.ORIGIN_MESSAGE_ID) or message.msg_id,
            PropertyName.DELAY: str(delay_level if delay_level > 0 else FIRST_LEVEL + message.reconsume_times),
        }
        properties.pop(PropertyName.TRANSACTION_PREPARED, None)
        try:
            route = await self._client.routes.find_or_template(topic, SystemTopic.AUTO_CREATE, 1)
            if not route.publish_queues:
                raise NoRoute(f"topic {topic} has no queue to write to. Check its permission.", topic=topic)
            queue = route.publish_queues[message.physical_offset % len(route.publish_queues)]
            body, sys_flag = await asyncio.to_thread(_packed, message)
            header = SendMessageV2Header(
                producer_group=self._group,
                topic=topic,
                default_topic=SystemTopic.AUTO_CREATE,
                default_topic_queue_nums=1,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp=now_ms(),
                flag=message.flag,
                properties=encode_properties(properties),
                reconsume_times=reconsume_times,
                unit_mode="false",
                max_reconsume_times=self._max_reconsume_times,
                batch="false",
                bname=queue.broker_name,
            )
            address = route.address(queue.broker_name)
            await self._client.request(address, RequestCode.SEND_MESSAGE_V2, header, body, topic=topic)
        except (ClientError, RequestError, ProtocolError, ValueError) as error:
            log.warning("not sent to the retry topic, keeping the message msg_id=%s error=%s", message.msg_id, error)
            return False
        self.sent += 1
        return True


def _packed(message: MessageExt) -> tuple[bytes, int]:
    """Return the body as a producer would send it, and its compression bits. An inflated body may exceed a frame."""
    compression = message.sys_flag & COMPRESSION_BITS
    if compression or len(message.body) < ProducerSettings().compress_above_bytes:
        return message.body, compression
    packed = compress(message.body, "zlib", DEFAULT_LEVELS["zlib"])
    return (packed, compression_flags("zlib")) if len(packed) < len(message.body) else (message.body, 0)
