"""Messages that a handler could not finish: back to their broker, which delivers them again after a while.

    back      36 at the message's broker: it puts a copy into %RETRY%<group>, delayed by how often it came already
    resend    where that fails, and for orderly groups: the copy is made here and sent to %RETRY%<group>

The broker counts: behind `max_reconsume_times` a message goes to %DLQ%<group>, as it does with a delay level below 0.
A resent message has RocketMQ's properties: RETRY_TOPIC, ORIGIN_MESSAGE_ID, DELAY; how often it was consumed goes into
the header of the send. Source: docs/formats.md, "Groups", "Send".
"""

import asyncio
import logging
import time
import zlib
from typing import Final

import msgspec

from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.consuming.message_buffer import Delivery
from skylarkmq.clients.consuming.received_message import COMPRESSION
from skylarkmq.clients.errors import ClientError, NoRoute
from skylarkmq.clients.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.settings import ProducerSettings
from skylarkmq.protocol.codes import RETRY_PREFIX, RequestCode, SysFlag, SystemTopic
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.headers.send_back import SendBackHeader
from skylarkmq.protocol.message import MessageExt, PropertyName, encode_properties

FIRST_LEVEL: Final = 3
TO_DEAD_LETTERS: Final = -1

log = logging.getLogger(__name__)


class Later(msgspec.Struct, frozen=True):
    """What a handler returns for a message that shall come again.

    `delay_level` 0: after the broker's own time, which grows with each return; from 1 on: after that level's; -1: not
    again, it goes to the dead letters. Orderly consumers hold the queue instead, and look at no level.
    """

    delay_level: int = 0


LATER: Final = Later()


class SendBack:
    """What one group sends back."""

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

    async def back(self, delivery: Delivery, delay_level: int) -> bool:
        """Give a message back to its broker, one way or the other; False: it is still this member's."""
        message, queue = delivery.message, delivery.progress.queue
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
            await self._client.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, topic=queue.topic)
        except ClientError as error:
            log.warning("not sent back, sending it again from here msg_id=%s error=%s", message.msg_id, error)
            dead = delay_level == TO_DEAD_LETTERS
            times = self._max_reconsume_times if dead else message.reconsume_times
            return await self.resend(message, times + 1, delay_level)
        self.sent += 1
        return True

    async def resend(self, message: MessageExt, reconsume_times: int, delay_level: int = 0) -> bool:
        """Send a copy to the group's retry topic, consumed so many times; False if that fails too."""
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
                born_timestamp=time.time_ns() // 1_000_000,
                flag=message.flag,
                properties=encode_properties(properties),
                reconsume_times=reconsume_times,
                unit_mode="false",
                max_reconsume_times=self._max_reconsume_times,
                batch="false",
                bname=queue.broker_name,
            )
            address = route.address(queue.broker_name)
            await self._client.ask(address, RequestCode.SEND_MESSAGE_V2, header, body, topic=topic)
        except (ClientError, RequestError, ProtocolError, ValueError) as error:
            log.warning("not sent to the retry topic, it stays here msg_id=%s error=%s", message.msg_id, error)
            return False
        self.sent += 1
        return True


def _packed(message: MessageExt) -> tuple[bytes, int]:
    """Return the body as a producer would send it, and its compression bits: an inflated one may exceed a frame."""
    compression = message.sys_flag & COMPRESSION
    if compression or len(message.body) < ProducerSettings().compress_above_bytes:
        return message.body, compression
    packed = zlib.compress(message.body, ProducerSettings().compression_level)
    return (packed, int(SysFlag.COMPRESSED)) if len(packed) < len(message.body) else (message.body, 0)
