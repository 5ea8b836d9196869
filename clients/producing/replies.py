"""Request and reply: a message that asks, and a second one that answers it.

    Producer.request -> CORRELATION_ID, REPLY_TO_CLIENT, TTL -> a topic -> a consumer -> reply -> 325 at the same broker
                     <- 326: the broker pushes the reply to the client that asked

The broker finds the one who asked by its heartbeat, so a reply goes to the broker that has the request: there the
client is known. Nobody keeps a reply for a client that is not there. Source: docs/formats.md, "Calls to clients".
"""

import time
from typing import Final

from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.errors import InvalidMessage
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import MessageExt, PropertyName, encode_properties

REPLY: Final = "reply"
DEFAULT_CLUSTER: Final = "DefaultCluster"
_COPIED: Final = (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL)


async def reply(
    client: Client, group: str, request: MessageExt, body: bytes, properties: dict[str, str] | None = None
) -> None:
    """Answer `request`; done when its broker has pushed the reply. InvalidMessage if nobody waits for one, BrokerError
    if the one who does is gone, or an error of the transport.
    """
    copied = {name: value for name in _COPIED if (value := request.properties.get(name))}
    if PropertyName.REPLY_TO_CLIENT not in copied or PropertyName.CORRELATION_ID not in copied:
        raise InvalidMessage(f"{request.msg_id} is no request: it names nobody to reply to", topic=request.topic)
    cluster = request.properties.get(PropertyName.CLUSTER, DEFAULT_CLUSTER)
    topic = cluster + SystemTopic.REPLY_SUFFIX
    header = SendMessageV2Header(
        producer_group=group,
        topic=topic,
        default_topic=SystemTopic.AUTO_CREATE,
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=encode_properties((properties or {}) | copied | {PropertyName.MESSAGE_TYPE: REPLY}),
        reconsume_times=0,
        unit_mode="false",
        batch="false",
    )
    address = "{}:{}".format(*request.store_host)
    await client.ask(address, RequestCode.SEND_REPLY_MESSAGE_V2, header, body, topic=topic)
