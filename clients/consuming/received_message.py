"""Stored messages as their consumers receive them: inflated, under their first topic, without namespace.

A few hundred kilobytes may inflate to hundreds of megabytes, so inflating has a limit (`max_inflated_bytes` of a
consumer), and it runs in steps between which the event loop serves others.

A body that cannot be inflated, or not within the limit, is handed over as stored, with a warning in the log: the
message keeps its compression bits in `sys_flag`, and the handler decides. `MessageExt.payload(max_bytes)` inflates it
with another limit; a handler that raises sends it back, and to the dead letters in the end, as any other message. The
queue goes on in all cases.
"""

import asyncio
import logging
from typing import Final

from skylarkmq.clients.errors import printable
from skylarkmq.clients.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.protocol.codes import RETRY_PREFIX, SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, PayloadError, inflate_steps
from skylarkmq.protocol.message import MessageExt, PropertyName

COMPRESSION: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE_MASK)

log = logging.getLogger(__name__)


def is_compressed(message: MessageExt) -> bool:
    """Return whether the body is still as it was stored, and compressed."""
    return bool(message.sys_flag & SysFlag.COMPRESSED)


async def inflate_message(message: MessageExt, max_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Inflate the body in place; beyond `max_bytes`, or if it is damaged, it stays as stored, with a warning."""
    if not is_compressed(message):
        return
    pieces: list[bytes] = []
    try:
        for piece in inflate_steps(message.body, message.sys_flag, max_bytes):
            if pieces:
                await asyncio.sleep(0)
            pieces.append(piece)
    except PayloadError as error:
        log.warning(
            "body handed over as stored topic=%s queue_id=%d queue_offset=%d offset_msg_id=%s max_inflated_bytes=%d "
            "error=%s",
            printable(message.topic),
            message.queue_id,
            message.queue_offset,
            message.offset_msg_id,
            max_bytes,
            error,
        )
        return
    message.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    message.sys_flag &= ~COMPRESSION


def readdressed(message: MessageExt, namespace: Namespace = NO_NAMESPACE) -> MessageExt:
    """Return the message under the topic that its sender named: a retried one too, and without namespace."""
    if message.topic.startswith(RETRY_PREFIX):
        message.topic = message.properties.get(PropertyName.RETRY_TOPIC, message.topic)
    if namespace.name:
        message.topic = namespace.strip(message.topic)
    return message


async def as_received(
    message: MessageExt, namespace: Namespace = NO_NAMESPACE, max_bytes: int = MAX_PAYLOAD_BYTES
) -> MessageExt:
    """Return a stored message as its consumer wants it."""
    await inflate_message(message, max_bytes)
    return readdressed(message, namespace)
