"""Request and reply: a request message, and a reply that its consumer sends back.

    Producer.request -> CORRELATION_ID, REPLY_TO_CLIENT, TTL -> a topic -> a consumer
                     -> SEND_REPLY_MESSAGE_V2 (325) to the same broker
                     <- PUSH_REPLY_MESSAGE_TO_CLIENT (326): the broker pushes the reply to the requesting client

The broker finds the requesting client by its heartbeat, so the reply goes to the broker that stores the request, where
that client is registered. A reply for a client that is not connected is not kept. Source: docs/reference/wire.md,
"Calls to clients".
"""

from typing import Final

from skylarkmq.clients.sdk.base.arguments import check_type
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import InvalidMessage, checking_argument
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import MessageExt, PropertyName, encode_properties

REPLY: Final = "reply"
DEFAULT_CLUSTER: Final = "DefaultCluster"
_COPIED: Final = (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL)


async def reply(
    client: Client, group: str, request: MessageExt, body: bytes, properties: dict[str, str] | None = None
) -> None:
    """Send a reply to `request`; return when its broker has pushed it to the requesting client.

    InvalidMessage if the message is no request, BrokerError if the client is not connected, or an error of the
    transport.
    """
    check_type("message", request, MessageExt)
    check_type("body", body, bytes, bytearray, memoryview)
    copied = {name: value for name in _COPIED if (value := request.properties.get(name))}
    if PropertyName.REPLY_TO_CLIENT not in copied or PropertyName.CORRELATION_ID not in copied:
        raise InvalidMessage(f"{request.msg_id} is no request: it has no client to reply to", topic=request.topic)
    with checking_argument("properties"):
        text = encode_properties(dict(properties or {}) | copied | {PropertyName.MESSAGE_TYPE: REPLY})
    cluster = request.properties.get(PropertyName.CLUSTER, DEFAULT_CLUSTER)
    topic = cluster + SystemTopic.REPLY_SUFFIX
    header = SendMessageV2Header(
        producer_group=group,
        topic=topic,
        default_topic=SystemTopic.AUTO_CREATE,
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=now_ms(),
        flag=0,
        properties=text,
        reconsume_times=0,
        unit_mode="false",
        batch="false",
    )
    address = "{}:{}".format(*request.store_host)
    await client.request(address, RequestCode.SEND_REPLY_MESSAGE_V2, header, body, topic=topic)
