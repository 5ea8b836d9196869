"""Randomly cut and damaged TLS streams arrive whole, or end the connection without an exception."""

import asyncio
import random
import ssl

import pytest

from skylarkmq.broker.remoting.config import RemotingConfig, TlsConfig
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_detection import TlsDetector
from skylarkmq.protocol.frame import TLS_HANDSHAKE
from tests.harness.certificates import unverified_context
from tests.harness.peer import MemoryTransport
from tests.harness.raw import frame

pytestmark = pytest.mark.fuzz

UNKNOWN_CODE = 1999
CONTEXT = unverified_context()


class Transport(MemoryTransport):
    """A socket's transport, and the protocol that it feeds."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__(("127.0.0.9", 4321))
        self.protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self.protocol = protocol

    def feed(self, data: bytes) -> None:
        """Pass the bytes of one recv to the protocol, in as many pieces as it takes."""
        while data and not self.closing:
            buffer = memoryview(self.protocol.get_buffer(-1))
            size = min(len(data), len(buffer))
            buffer[:size] = data[:size]
            self.protocol.buffer_updated(size)
            data = data[size:]


class Conversation:
    """A client and a server, exchanged step by step; `spoil` may change the client's bytes."""

    def __init__(self, choice: random.Random, tls: ServerTls) -> None:
        self.choice = choice
        self.selector = Selector(Dispatcher(), RemotingConfig())
        self.transport = Transport(TlsDetector(self.selector.new_connection(), self.selector.registry, tls))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = CONTEXT.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.answered = bytearray()

    def exchange(self, *, is_spoiled: bool) -> None:
        """Send all the client's bytes in pieces of any size, and return the server's bytes to the client."""
        sent = bytearray(self.outgoing.read())
        if is_spoiled and sent:
            at = self.choice.randrange(len(sent))
            sent[at : at + self.choice.randrange(1, 4)] = self.choice.randbytes(self.choice.randrange(1, 4))
        while sent and not self.transport.closing:
            size = self.choice.choice((1, 5, 100, 4_000, 70_000, len(sent)))
            self.transport.feed(bytes(sent[:size]))
            del sent[:size]
        self.selector.pending_writes.flush()
        self.incoming.write(bytes(self.transport.written))
        self.transport.written.clear()

    def handshake(self) -> None:
        """Do a step of the handshake. Raises SSLWantReadError while it is incomplete, another SSLError if it fails."""
        while not self.transport.closing:
            try:
                self.engine.do_handshake()
            except ssl.SSLWantReadError:
                if not self.outgoing.pending:
                    raise
                self.exchange(is_spoiled=False)
            else:
                self.exchange(is_spoiled=False)
                return

    def end(self) -> None:
        self.transport.closing = True
        self.transport.protocol.connection_lost(None)
        assert not self.selector.registry.connections


def exchange_requests(conversation: Conversation, requests: int) -> int:
    """Return the number of responses to `requests` requests."""
    choice, engine = conversation.choice, conversation.engine
    for n in range(requests):
        engine.write(frame({"code": UNKNOWN_CODE, "opaque": n}, choice.randbytes(choice.choice((0, 10, 20_000)))))
    conversation.exchange(is_spoiled=False)
    answers = bytearray()
    try:
        while piece := engine.read(1 << 16):
            answers += piece
    except ssl.SSLWantReadError:
        pass  # no more data
    return answers.count(b"not supported")


async def test_randomly_cut_streams_arrive_whole(fuzz_rounds: int) -> None:
    """However the client's bytes are cut into reads, each request is answered."""
    choice, tls = random.Random(1), ServerTls(TlsConfig())
    for _ in range(fuzz_rounds // 500):
        conversation = Conversation(choice, tls)
        conversation.handshake()
        requests = choice.randrange(1, 60)
        assert exchange_requests(conversation, requests) == requests
        conversation.end()
    assert tls.failed == 0


async def test_damage_ends_the_connection_without_an_exception(
    fuzz_rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage in a hello, a later step or a record: at most one line in the log, no exception, and nothing remains."""
    caplog.set_level("INFO")
    choice, tls = random.Random(2), ServerTls(TlsConfig())
    for _ in range(fuzz_rounds // 500):
        conversation = Conversation(choice, tls)
        try:
            if choice.random() < 0.5:
                conversation.handshake()
                conversation.engine.write(choice.randbytes(choice.choice((10, 40_000))))
            else:
                conversation.engine.do_handshake()
        except ssl.SSLWantReadError:
            pass  # the first step is complete
        conversation.exchange(is_spoiled=True)
        conversation.end()
    assert "Traceback" not in caplog.text
    assert tls.failed == caplog.text.count("tls handshake failed")
    assert "TLS error" in caplog.text


async def test_garbage_ends_the_connection(fuzz_rounds: int) -> None:
    """Any bytes after or instead of 0x16 end the connection, or are an incomplete record."""
    choice, tls = random.Random(3), ServerTls(TlsConfig())
    for _ in range(fuzz_rounds // 50):
        conversation = Conversation(choice, tls)
        head = choice.choice((b"", bytes([TLS_HANDSHAKE]), b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"))
        conversation.transport.feed(head + choice.randbytes(choice.randrange(1, 700)))
        conversation.end()
    assert tls.established == 0
