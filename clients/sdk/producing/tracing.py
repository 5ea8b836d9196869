"""Message traces of RocketMQ: `trace=True` of producers and consumers.

    hooks -> records -> every FLUSH_S, as few messages as possible -> RMQ_SYS_TRACE_TOPIC

At most MAX_WAITING records are queued. Further records are dropped and counted, so that traces do not delay the traced
messages. A trace that cannot be sent is lost, with a warning in the log. A broker disables traces by `traceOn=false` in
its responses to sends, and names the region that the records mention.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

import skylarkmq.clients.sdk.telemetry.trace_records as records
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.messages.outgoing_message import Preparation
from skylarkmq.clients.sdk.messages.send_result import SendStatus
from skylarkmq.clients.sdk.producing.sends import Sends
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, ObservedEnd, ObservedProcess, ObservedSend
from skylarkmq.clients.sdk.telemetry.trace_records import Place, Record
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.message import PropertyName
from skylarkmq.protocol.message_id import UniqueIds, decode_offset_id

FLUSH_S: Final = 0.2
MAX_WAITING: Final = 20_000
DEFAULT_REGION: Final = "DefaultRegion"
GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER-"

log = logging.getLogger(__name__)


class TracingStatistics(msgspec.Struct, frozen=True):
    """The figures of the traces; `sent` (messages), `dropped` and `lost` (records) are totals."""

    waiting: int
    sent: int
    dropped: int
    lost: int


class Tracing(Hooks):
    """Hooks that send the traces of one producer or consumer of `group`, on its client."""

    def __init__(
        self,
        client: Client,
        group: str,
        ids: UniqueIds,
        namespace: Namespace = NO_NAMESPACE,
        topic: str = SystemTopic.TRACE,
    ) -> None:
        self._topic = topic
        self._group = namespace.strip(group)
        self._settings = ProducerSettings()
        self._preparation = Preparation(ids, self._settings)
        self._sends = Sends(GROUP_PREFIX + self._group.replace("%", "-"), client, self._settings)
        self._records: deque[Record] = deque()
        self._background = Background(f"{group}/trace")
        self._region = DEFAULT_REGION
        self._is_accepted = True
        self._sent = self._dropped = self._lost = 0

    def __repr__(self) -> str:
        return f"<Tracing {self._group} {len(self._records)} waiting, {self._sent} sent>"

    def statistics(self) -> TracingStatistics:
        """Return the figures now."""
        return TracingStatistics(len(self._records), self._sent, self._dropped, self._lost)

    def start(self) -> None:
        """Start sending traces."""
        self._sends.start()
        self._background.repeat("flush", self.flush, FLUSH_S)

    async def stop(self) -> None:
        """Send the queued records, in at most `send_timeout_s`."""
        await self._background.stop()
        try:
            async with asyncio.timeout(self._settings.send_timeout_s):
                await self.flush()
        except TimeoutError:
            log.warning("traces lost: they could not be sent before the stop group=%s", self._group)
        await self._sends.finish()

    def heard(self, response: RemotingCommand) -> None:
        """Read the broker's region, and whether it accepts traces, from the response to a send."""
        ext = response.ext_fields()
        self._region = ext.get(PropertyName.MSG_REGION) or DEFAULT_REGION
        self._is_accepted = ext.get(PropertyName.TRACE_ON) != "false"

    async def flush(self) -> None:
        """Send all queued records."""
        waiting = [self._records.popleft() for _ in range(len(self._records))]
        for message in records.messages(self._topic, waiting):
            outgoing = self._preparation.one(message, now_ms())
            try:
                await self._sends.begin(outgoing, None, None, self._settings.send_timeout_s)
            except ClientError as error:
                self._lost += message.body.count(records.RECORD_END.encode())
                log.warning("trace not sent, it is lost topic=%s error=%s", self._topic, error)
            else:
                self._sent += 1

    # --------------------------------------------------------------------------------------------------------- hooks

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        """Add a record for each stored message."""
        begun_ms, begun_s = now_ms(), time.perf_counter()
        yield
        if not send.results or not self._is_accepted or send.messages[0].topic == self._topic:
            return
        cost_ms = int((time.perf_counter() - begun_s) * 1000)
        place = Place(self._group, self._region)
        for message, (msg_id, offset_msg_id, is_safe) in zip(send.messages, _stored(send), strict=False):
            self._add(
                records.sent(
                    message,
                    place,
                    (msg_id, offset_msg_id),
                    store=_host(offset_msg_id),
                    begun_ms=begun_ms,
                    cost_ms=cost_ms,
                    succeeded=is_safe,
                )
            )

    def ended(self, end: ObservedEnd) -> None:
        """Add a record of the end of a transaction."""
        if self._is_accepted:
            self._add(
                records.ended(
                    end.message,
                    Place(self._group, self._region),
                    (end.msg_id, end.transaction_id),
                    store=_host(end.offset_msg_id),
                    at_ms=now_ms(),
                    state=f"{end.state}_MESSAGE",
                    by_checker=end.by_checker,
                )
            )

    @contextmanager
    def processing(self, process: ObservedProcess) -> Iterator[None]:
        """Add a record before the call and one after it."""
        message = process.message
        if message.properties.get(PropertyName.TRACE_ON) == "false" or message.topic == self._topic:
            yield
            return
        place = Place(self._group, message.properties.get(PropertyName.MSG_REGION) or DEFAULT_REGION)
        request_id, begun_s, outcome = uuid.uuid4().hex.upper(), time.perf_counter(), records.RAISED
        self._add(records.begun(message, place, request_id, now_ms()))
        try:
            yield
            outcome = records.SUCCEEDED if process.succeeded else records.LATER
        except asyncio.CancelledError:
            outcome = records.TIMED_OUT
            raise
        finally:
            cost_ms = int((time.perf_counter() - begun_s) * 1000)
            self._add(records.finished(message, place, request_id, at_ms=now_ms(), cost_ms=cost_ms, outcome=outcome))

    def _add(self, record: Record) -> None:
        if len(self._records) >= MAX_WAITING:
            if not self._dropped:
                log.warning("traces dropped, they are made faster than they can be sent waiting=%d", MAX_WAITING)
            self._dropped += 1
        else:
            self._records.append(record)


def _stored(send: ObservedSend) -> Iterator[tuple[str, str, bool]]:
    """Yield the message id and the offset id of each message, and whether its status is OK."""
    for result in send.results:
        is_safe = result.status is SendStatus.OK
        if len(send.messages) == 1:
            yield result.msg_id, result.offset_msg_id, is_safe
        else:
            for ids in zip(result.msg_id.split(","), result.offset_msg_id.split(","), strict=False):
                yield *ids, is_safe


def _host(offset_msg_id: str) -> str:
    try:
        ip, port, _ = decode_offset_id(offset_msg_id)
    except ValueError:
        return ""
    return f"{ip}:{port}"
