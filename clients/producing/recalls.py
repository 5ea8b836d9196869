"""Taking back a message that waits for its time of delivery.

The answer to the send of such a message brings a handle (`SendResult.recall_handle`), which names topic, broker, time
and message; the broker that has the message is asked (370) to forget it. Brokers of RocketMQ 5.3 and this one have
that, if `recallMessageEnable` says so. Source: docs/formats.md, "Timer messages".
"""

from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.errors import InvalidMessage
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.recall import RecallMessageHeader, RecallMessageResponseHeader
from skylarkmq.protocol.recall_handle import RecallHandle


async def recall(client: Client, group: str, topic: str, handle: str, timeout_s: float) -> str:
    """Take back the message of `handle`, and return its id. InvalidMessage if it is no handle of this topic, else what
    the broker or the transport says.
    """
    try:
        parts = RecallHandle.decode(handle)
    except ValueError as error:
        raise InvalidMessage(
            f"{handle!r} is no recall handle: give what SendResult.recall_handle said of a message with a time of "
            "delivery.",
            topic=topic,
        ) from error
    if parts.topic != topic:
        raise InvalidMessage(f"the handle is of topic {parts.topic}, not {topic}: name that one.", topic=topic)
    route = await client.routes.find(topic)
    header = RecallMessageHeader(topic=topic, recall_handle=handle, producer_group=group, bname=parts.broker_name)
    address = route.address(parts.broker_name)
    answer = await client.ask(address, RequestCode.RECALL_MESSAGE, header, topic=topic, timeout_s=timeout_s)
    return answer.header(RecallMessageResponseHeader).msg_id
