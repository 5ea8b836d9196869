"""Messages, queues and results as RocketMQ's classes print them (`toString`), and the fields of one message.

Properties have the order of the HashMap in which RocketMQ's clients keep them.
"""

import codecs
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.mqadmin.files import ROCKETMQ_FILES, file_name, write_file
from skylarkmq.clients.mqadmin.java_output import Lines, java_text, local_time_ms, printf
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.message_tracks import MessageTrack
from skylarkmq.clients.sdk.connection.topic_route import address_text
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.protocol.bodies.client_state import ConsumeDirectlyResult
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.hash_order import bucket_order
from skylarkmq.protocol.message import MessageExt, PropertyName

BODIES: Final = ROCKETMQ_FILES / "msgbodys"
"""Where the bodies of printed messages are written, each to a file with the name of the message id."""
PROPERTIES_CAPACITY: Final = 128
_FIELD: Final = "%-20s %s%n"


def print_message(message: MessageExt, body_file: Path, *, has_offset_id: bool = True) -> None:
    """Print the fields of a message, and write its body to a file."""
    write_file(body_file, message.body)
    if has_offset_id:
        printf(_FIELD, "OffsetID:", message.offset_msg_id)
    printf(_FIELD, "Topic:", message.topic)
    printf(_FIELD, "Tags:", f"[{java_text(message.tags or None)}]")
    printf(_FIELD, "Keys:", f"[{java_text(message.properties.get(PropertyName.KEYS))}]")
    printf(_FIELD, "Queue ID:", message.queue_id)
    printf(_FIELD, "Queue Offset:", message.queue_offset)
    printf(_FIELD, "CommitLog Offset:", message.physical_offset)
    printf(_FIELD, "Reconsume Times:", message.reconsume_times)
    printf(_FIELD, "Born Timestamp:", local_time_ms(message.born_timestamp))
    printf(_FIELD, "Store Timestamp:", local_time_ms(message.store_timestamp))
    printf(_FIELD, "Born Host:", address_text(message.born_host))
    printf(_FIELD, "Store Host:", address_text(message.store_host))
    printf(_FIELD, "System Flag:", message.sys_flag)
    printf(_FIELD, "Properties:", properties_text(message.properties))
    printf(_FIELD, "Message Body Path:", body_file)


async def print_tracks(admin: Admin, message: MessageExt, end: str) -> None:
    """Print the state of the message in each consumer group, and `end` after each."""
    tracks = await admin.messages.tracks(message)
    printf("%n%n")
    if not tracks:
        printf("WARN: No Consumer")
    for track in tracks:
        printf("%s%s", track_text(track), Lines(end))


def body_file_of(message: MessageExt, index: int = 0) -> Path:
    """Return the file for the body of a message; `index` distinguishes messages with the same id."""
    name = file_name(message.msg_id)
    return BODIES / (f"{name}_{index}" if index else name)


def charset(name: str) -> str:
    """Return the name of a charset. CommandFailed if no charset has this name, or if it cannot decode every body."""
    try:
        b"\xff".decode(name.strip(), "replace")
        return codecs.lookup(name.strip()).name
    except (LookupError, ValueError) as error:  # other codecs, such as hex, and names with a NUL
        raise usage_error(f"no charset {name.strip()}: give one such as UTF-8 or GBK.") from error


def body_text(message: MessageExt, encoding: str) -> Lines:
    """Return a body as text. Bytes that are no text become U+FFFD."""
    return Lines(message.body.decode(encoding, "replace"))


def properties_text(properties: dict[str, str]) -> str:
    """Return properties as `{name=value, name=value}`."""
    names = bucket_order(properties, PROPERTIES_CAPACITY)
    return "{" + ", ".join(f"{name}={properties[name]}" for name in names) + "}"


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as RocketMQ's MessageQueue prints it."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def track_text(track: MessageTrack) -> str:
    """Return a track as RocketMQ's MessageTrack prints it."""
    reason = java_text(track.reason)
    return f"MessageTrack [consumerGroup={track.group}, trackType={track.track_type}, exceptionDesc={reason}]"


def message_text(message: MessageExt, broker_name: str) -> str:
    """Return a pulled message as RocketMQ's MessageExt prints it."""
    is_prepared = message.properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"
    transaction_id = message.uniq_key if is_prepared else None
    plain = (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={properties_text(message.properties)}, "
        f"body={bytes_text(message.body)}, transactionId='{java_text(transaction_id)}'}}"
    )
    return (
        f"MessageExt [brokerName={broker_name}, queueId={message.queue_id}, storeSize={message.size}, "
        f"queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{address_text(message.born_host)}, storeTimestamp={message.store_timestamp}, "
        f"storeHost=/{address_text(message.store_host)}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, toString()={plain}]"
    )


def bytes_text(data: Iterable[int]) -> str:
    """Return bytes as Java prints them: `[104, 105, -61]`."""
    return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in data) + "]"


def as_pulled(message: MessageExt, min_offset: int, max_offset: int) -> MessageExt:
    """Return a pulled message with the properties that RocketMQ's consumers add."""
    bounds = {PropertyName.MIN_OFFSET: str(min_offset), PropertyName.MAX_OFFSET: str(max_offset)}
    return msgspec.structs.replace(message, properties=message.properties | bounds)


def status_text(status: SendStatus) -> str:
    """Return the status of a send by RocketMQ's name."""
    return "SEND_OK" if status is SendStatus.OK else status.name


def result_text(result: SendResult) -> str:
    """Return the result of a send as RocketMQ's SendResult prints it."""
    return (
        f"SendResult [sendStatus={status_text(result.status)}, msgId={result.msg_id}, "
        f"offsetMsgId={result.offset_msg_id}, messageQueue={queue_text(result.queue)}, "
        f"queueOffset={result.queue_offset}, recallHandle={java_text(result.recall_handle)}]"
    )


def direct_result_text(result: ConsumeDirectlyResult) -> Lines:
    """Return the result of a handler as RocketMQ's ConsumeMessageDirectlyResult prints it."""
    return Lines(
        f"ConsumeMessageDirectlyResult [order={java_text(result.order)}, autoCommit={java_text(result.auto_commit)}, "
        f"consumeResult={result.consume_result}, remark={java_text(result.remark)}, "
        f"spentTimeMills={result.spent_time_mills}]"
    )
