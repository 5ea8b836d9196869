"""Stored messages as consumers receive them: inflated, under their original topic, without namespace.

A few hundred kilobytes may inflate to hundreds of megabytes, so inflating has a limit (`max_inflated_bytes` of a
consumer), and other tasks run between its steps (clients/sdk/messages/compression.py).

A body that cannot be inflated, or not within the limit, is an InvalidBody: a consumer never delivers a body that is
still compressed. `Admin` shows such a message as it is stored (`inflate_or_keep`): the compression bits stay in
`sys_flag`, and a warning is logged.
"""

import logging

from skylarkmq.clients.sdk.base.errors import InvalidBody, printable
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.sdk.messages.compression import COMPRESSION_BITS, decompress
from skylarkmq.protocol.codes import RETRY_PREFIX, SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, PayloadError
from skylarkmq.protocol.message import MessageExt, PropertyName

log = logging.getLogger(__name__)


def is_compressed(message: MessageExt) -> bool:
    """Return whether the body is compressed, as it was stored."""
    return bool(message.sys_flag & SysFlag.COMPRESSED)


async def inflate_message(message: MessageExt, max_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Inflate the body in place. Raises InvalidBody if it is damaged, larger than `max_bytes`, or of a codec whose
    package is not installed: the text names the message, the limit, and the extra to install.
    """
    if not is_compressed(message):
        return
    try:
        message.body = await decompress(message.body, message.sys_flag, max_bytes)
    except PayloadError as error:
        raise InvalidBody(
            f"{place_of(message)} max_inflated_bytes={max_bytes}: {error}", topic=message.topic
        ) from error
    message.sys_flag &= ~COMPRESSION_BITS


async def inflate_or_keep(message: MessageExt, max_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Inflate the body in place; keep a body that cannot be inflated as it is stored, and log a warning."""
    try:
        await inflate_message(message, max_bytes)
    except InvalidBody as error:
        log.warning("body kept as stored error=%s", error)


def restore_topic(message: MessageExt, namespace: Namespace = NO_NAMESPACE) -> MessageExt:
    """Return the message under the topic that its producer sent it to: also a redelivered one, without namespace."""
    if message.topic.startswith(RETRY_PREFIX):
        message.topic = message.properties.get(PropertyName.RETRY_TOPIC, message.topic)
    if namespace.name:
        message.topic = namespace.strip(message.topic)
    return message


def place_of(message: MessageExt) -> str:
    """Return where a message is stored, for logs and errors."""
    return (
        f"topic={printable(message.topic)} queue_id={message.queue_id} queue_offset={message.queue_offset} "
        f"offset_msg_id={message.offset_msg_id}"
    )
