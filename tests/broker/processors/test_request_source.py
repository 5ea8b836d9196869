"""Processors serve a minimal request source: they need no connection, only `RequestSource` and `ClientChannel`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from skylarkmq.broker.access.message_rights import AllMessages
from skylarkmq.broker.processors.query import QueryProcessor
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import UNCHECKED, Dispatcher
from skylarkmq.broker.remoting.request_source import ClientChannel, PausableSource
from skylarkmq.broker.remoting.sendfile import FileRegion
from skylarkmq.protocol.codes import Flag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.headers.queue import QueueHeader
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import decode
from skylarkmq.protocol.serialize import decode_command, encode_command
from skylarkmq.protocol.stream import CommandDecoder
from tests.broker.processors.send.test_fast_path import COMMON
from tests.broker.processors.send.test_processor import Sends, send
from tests.harness.broker_parts import GROUP, broker_parts, consumer, heartbeat, pull


class MemoryChannel:
    """A client that collects what the broker sends to it."""

    peer = "10.0.0.2:40000"
    paused = False
    closed = False
    backlog_bytes = 0
    calls = 0

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []

    def write(self, data: bytes | memoryview) -> None:
        self.requests += decoded(bytes(data))

    def push(self, command: RemotingCommand) -> None:
        self.requests.append(command)

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise TimeoutError(f"{command} got no response within {timeout_s} s")

    def close(self) -> None:
        self.closed = True

    abort = close


class MemorySource:
    """A source without a connection: it serves requests from memory, and collects their responses."""

    peer = "10.0.0.2:40000"
    host = "10.0.0.2"
    peer_host = encode_host(host, 40_000)
    certificate_subject: str | None = None
    arrived_s = 0.0
    active_s = 0.0
    closed = False
    output_bytes = 0

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._written = bytearray()
        self.client = MemoryChannel()

    def serve(self, *commands: RemotingCommand) -> list[RemotingCommand]:
        """Serve these requests as one read, and return the responses that are written within it."""
        for opaque, command in enumerate(commands, 1):
            command.opaque = opaque
        received = CommandDecoder().feed_commands(memoryview(b"".join(map(encode_command, commands))))
        at, run = 0, UNCHECKED
        while at < len(received):
            at, run = self._dispatcher.dispatch_from(self, received, at, run)
        self._dispatcher.end_batch()
        self._dispatcher.run_after_responses()
        return self.take()

    def take(self) -> list[RemotingCommand]:
        """Return the responses written since the last call."""
        written, self._written = bytes(self._written), bytearray()
        return decoded(written)

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        if not request.flag & Flag.ONEWAY:
            self.write(encode_command(response.in_response_to(request)))

    def write(self, data: bytes | memoryview) -> None:
        self._written += data

    def write_regions(self, regions: Sequence[FileRegion], head: bytes = b"") -> None:
        self.write(head)
        for region in regions:
            for part in region.parts_after(b""):
                self.write(part)

    def pause_reads(self) -> None:
        raise AssertionError("no reads to pause")

    def busy_poll(self, times: int = 1) -> int:
        assert times
        return 0

    def hold(self, wait_s: float) -> None:
        raise AssertionError(f"held for {wait_s} s")

    def defer(self, commands: list[RemotingCommand]) -> None:
        raise AssertionError(f"{commands} deferred")

    def close(self) -> None:
        raise AssertionError("closed")


def decoded(data: bytes) -> list[RemotingCommand]:
    return [
        command for frame in FrameDecoder().feed(memoryview(data)) if (command := decode_command(frame)) is not None
    ]


async def test_a_connection_is_a_source_and_a_channel(tmp_path: Path) -> None:
    """So sessions identify a client by its connection."""
    with broker_parts(tmp_path) as parts:
        source: PausableSource = parts.peer().connection
        channel: ClientChannel = source.client
        assert isinstance(source, Connection)
        assert channel is source


async def test_sends_of_any_source_are_stored(tmp_path: Path) -> None:
    """On the fast path and on the general path, with the address of the source."""
    sends = Sends(tmp_path)
    source = MemorySource(sends.dispatcher)
    sent = [source.serve(send(body, properties=COMMON)) for body in (b"first", b"second", b"third")]
    sent.append(source.serve(send(b"V1", code=RequestCode.SEND_MESSAGE)))
    responses = [response for served in sent for response in served]
    assert [response.code for response in responses] == [ResponseCode.SUCCESS] * 4
    stored = [message for response in responses for message in sends.stored(response)]
    assert [message.body for message in stored] == [b"first", b"second", b"third", b"V1"]
    assert {message.born_host for message in stored} == {(source.host, 40_000)}
    sends.store.close()


async def test_pulls_of_any_source_get_messages(tmp_path: Path) -> None:
    """On the fast path, on the general path, and from a parked pull that a message wakes up."""
    with broker_parts(tmp_path) as parts:
        source = MemorySource(parts.dispatcher)
        parts.put(b"a", b"b")
        for code in (RequestCode.PULL_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            (response,) = source.serve(pull(code=code))
            assert [message.body for message in decode(bytes(response.body))] == [b"a", b"b"]
        assert source.serve(pull(queue_offset=2, suspend_ms=1_000)) == []
        parts.put(b"c")
        (response,) = source.take()
        assert [message.body for message in decode(bytes(response.body))] == [b"c"]


async def test_queries_of_any_source_are_served(tmp_path: Path) -> None:
    """At once, or by a coroutine."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a", b"b")
        parts.serve(QueryProcessor(parts.store, 32, AllMessages()).handlers())
        source = MemorySource(parts.dispatcher)
        (response,) = source.serve(RemotingCommand.request(RequestCode.GET_MAX_OFFSET, QueueHeader("T", 0)))
        assert response.ext_fields() == {"offset": "2"}
        response_later = RemotingCommand.request(RequestCode.GET_ALL_PRODUCER_INFO)
        assert source.serve(response_later) == []
        await asyncio.gather(*parts.dispatcher._tasks)
        assert [response.code for response in source.take()] == [ResponseCode.SUCCESS]


async def test_heartbeats_of_any_source_make_a_session(tmp_path: Path) -> None:
    """The channel of the source is the member: it gets the notifications, and its end removes the member."""
    with broker_parts(tmp_path) as parts:
        source, other = MemorySource(parts.dispatcher), MemorySource(parts.dispatcher)
        (response,) = source.serve(heartbeat(consumer(), client_id="c1", producers=("PG",)))
        assert response.code == ResponseCode.SUCCESS
        other.serve(heartbeat(consumer(), client_id="c2"))
        group = parts.sessions.consumer_group(GROUP)
        assert group is not None
        assert list(group.members) == [source.client, other.client]
        assert parts.sessions.producer("c1") is source.client
        assert [request.code for request in other.client.requests] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
        parts.clients.channel_closed(other.client)
        assert group.client_ids() == ["c1"]
