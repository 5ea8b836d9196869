"""Requests without a reply so far: a future by correlation id. See clients/sdk/producing/replies.py."""

import asyncio

from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import PushReplyHeader
from skylarkmq.protocol.message import MessageExt, PropertyName, decode_properties


class PendingReplies:
    """The futures of pending requests."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def __repr__(self) -> str:
        return f"<PendingReplies {len(self._waiting)}>"

    def expect(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """Return the future of the reply to a request; it is removed here when it is done."""
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        return future

    def arrived(self, pushed: RemotingCommand) -> bool:
        """Pass a pushed reply to its request; return False if no request waits for it."""
        message = _pushed_message(pushed)
        waiter = self._waiting.get(message.properties.get(PropertyName.CORRELATION_ID, ""))
        if waiter is None or waiter.done():
            return False
        waiter.set_result(message)
        return True


def _pushed_message(pushed: RemotingCommand) -> MessageExt:
    header, body = pushed.header(PushReplyHeader), bytes(pushed.body)
    return MessageExt(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=decode_properties(header.properties or ""),
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_crc=0,
        size=len(body),
    )


def _host(text: str) -> tuple[str, int]:
    """Return address and port of `ip:port`; Java also writes `/ip:port` and `name/ip:port`."""
    ip, _, port = text.rpartition("/")[2].rpartition(":")
    return ip, int(port) if port.isdecimal() and len(port) <= 5 else 0
