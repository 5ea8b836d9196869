"""Recalling a message that waits for its time of delivery.

The response to the send of such a message contains a handle (`SendResult.recall_handle`) with topic, broker, time and
message id. RECALL_MESSAGE (370) asks the broker to drop the message. Brokers of RocketMQ 5.3 and this broker support
it if `recallMessageEnable` is set. Source: docs/reference/wire.md, "Timer messages".
"""

from skylarkmq.clients.sdk.base.errors import InvalidMessage, reading_response
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.recall import RecallMessageHeader, RecallMessageResponseHeader
from skylarkmq.protocol.recall_handle import RecallHandle


async def recall(client: Client, group: str, topic: str, handle: str, timeout_s: float) -> str:
    """Recall the message of `handle` and return its id.

    InvalidMessage if it is no handle of this topic; BrokerError, NoRoute, InvalidResponse, an error of the transport.
    """
    try:
        parts = RecallHandle.decode(handle)
    except ValueError as error:
        raise InvalidMessage(
            f"{handle!r} is no recall handle: use SendResult.recall_handle of a message with a time of delivery.",
            topic=topic,
        ) from error
    if parts.topic != topic:
        raise InvalidMessage(f"the handle is of topic {parts.topic}, not of {topic}", topic=topic)
    route = await client.routes.find(topic)
    header = RecallMessageHeader(topic=topic, recall_handle=handle, producer_group=group, bname=parts.broker_name)
    address = route.address(parts.broker_name)
    code = RequestCode.RECALL_MESSAGE
    response = await client.request(address, code, header, topic=topic, timeout_s=timeout_s)
    with reading_response(code, f"broker {address}", topic):
        return response.header(RecallMessageResponseHeader).msg_id
