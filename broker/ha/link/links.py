"""All links of a node: they are opened, accepted and numbered here, and carry messages and the log.

A follower opens one link, to the leader. A leader accepts links of the nodes that `haPeers` names. Before HELLO the
peer shows that it belongs to the group: by the cluster secret, or by a certificate that TLS has verified. Without both,
links are open to each machine that reaches the port; a daemon starts like that on a loopback address only.

Reasons why links end are logged when they change: a follower with a wrong secret tries again twice a second. Reasons
of accepted connections may contain bytes of the peer, so they are logged at most once a minute for each host and kind
of reason, until the node has a name of `haPeers`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.ha.core.events import Event, Heard, Linked, LinkFailed, Received, Unlinked
from skylarkmq.broker.ha.core.messages import Data, Hello, Message
from skylarkmq.broker.ha.link.catch_up import CatchUp
from skylarkmq.broker.ha.link.connection import LinkConnection
from skylarkmq.broker.ha.link.feed import Feed, LastFrame
from skylarkmq.broker.ha.link.handshake import Handshake
from skylarkmq.broker.ha.link.log_bytes import LogBytes
from skylarkmq.broker.ha.peers import Peer
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls, reason_of
from skylarkmq.broker.remoting.tls_transport import TlsTransport
from skylarkmq.protocol.frame import TLS_HANDSHAKE

CONNECT_TIMEOUT_S: Final = 3.0
READ_BYTES: Final = 256 << 10
MAX_ACCEPTED: Final = 64
MAX_REASONS: Final = 64

log = logging.getLogger(__name__)


class LinkSettings(msgspec.Struct, frozen=True):
    """`secret` None: there is none. `needs_certificate`: an accepted link has to present a verified certificate.

    `segment_bytes`: the size of the log's segments, which is the same on all nodes.
    """

    node: str
    peers: Mapping[str, Peer]
    segment_bytes: int
    secret: bytes | None = None
    needs_certificate: bool = False
    catch_up_bytes_per_s: int = 0

    def __repr__(self) -> str:
        return f"<LinkSettings {self.node} peers={list(self.peers)}>"


class Links:
    """The links of one node. `committed` returns what the node knows to be committed.

    Set by `LinkMember.start`: `post`, which receives events of the core, and `copy`. Both are of the Runner, which is
    made with the links, because it sends through them.
    """

    def __init__(
        self,
        settings: LinkSettings,
        source: LogBytes,
        committed: Callable[[], int],
        *,
        server_tls: ServerTls | None = None,
        client_tls: ReloadingContext | None = None,
    ) -> None:
        self.post: Callable[[Event], None] = lambda _: None
        self.copy: Callable[[int, Data], bool] = lambda _link, _data: False
        """Acknowledges DATA at once; False: it becomes an event."""
        self.problems: dict[str, str] = {}
        """The last reason why a link to or from a peer ended, by its name or address; none for open links."""
        self._settings = settings
        self._source = source
        self._committed = committed
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._last_frame = LastFrame(source)
        self._catch_up = CatchUp(settings.catch_up_bytes_per_s)
        self._count = 0
        self._connections: dict[int, LinkConnection] = {}
        self._nodes: dict[int, str] = {}  # names of peers, once they are known
        self._opened: set[int] = set()
        self._feeds: dict[int, Feed] = {}
        self._last = (0, 0)
        self._attempts: set[asyncio.Task[None]] = set()
        self.refused: Counter[str] = Counter()
        """Links that this node refused or cut since the start, by kind of reason."""
        self._refusals = Refused(counts=self.refused)

    def __repr__(self) -> str:
        return f"<Links {self._settings.node} open={sorted(self._nodes[n] for n in self._opened if n in self._nodes)}>"

    # Effects of the core

    def connect(self, node: str) -> None:
        """Connect to a peer. Linked or LinkFailed follows."""
        peer = self._settings.peers.get(node)
        if peer is None:
            if self._note(node, reason := "haPeers does not name it"):
                log.info("no link peer=%s reason=%s", node, reason)
            self.post(LinkFailed(node, refused=False))
            return
        attempt = asyncio.get_running_loop().create_task(self._connect(node, peer))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    def send(self, link: int, message: Message) -> None:
        """Send a message, unless the link has ended."""
        if (connection := self._connections.get(link)) is not None:
            connection.send(message)

    def feed(self, link: int, epoch: int, start: int) -> None:
        """Send the log from `start` on, and all that is written later."""
        if (connection := self._connections.get(link)) is not None:
            feed = Feed(
                connection, self._source, self._last_frame, self._catch_up, self._committed, epoch=epoch, start=start
            )
            self._feeds[link] = feed
            self._push(feed)

    def close(self, link: int, reason: str) -> None:
        """Close a link, after what was sent before. No event follows."""
        if (connection := self._connections.get(link)) is not None:
            is_refused = not connection.connects and not self._feeds.get(link)
            self._forget(connection, reason, "core" if is_refused else "")
            connection.close(reason)

    # Events of the owner

    def written(self) -> None:
        """The log was extended: send it on."""
        self._push(*self._feeds.values())

    def address(self, link: int) -> str:
        """Return `host:port` of the peer of a link, "" for one that has ended."""
        connection = self._connections.get(link)
        return "" if connection is None else connection.address

    def last_read_and_write_ms(self) -> tuple[int, int]:
        """Return when the link to the leader was read and written last, in Unix ms; 0: never."""
        for connection in self._connections.values():
            if connection.connects:
                self._last = (int(connection.read_at * 1000), int(connection.written_at * 1000))
        return self._last

    def sent(self, link: int) -> int:
        """Return up to where the log was sent over a link."""
        feed = self._feeds.get(link)
        return 0 if feed is None else feed.sent

    def step(self, now: float) -> None:
        """Cut links whose peers do not read, and post Heard for the link to the leader. `now`: the loop's time."""
        for connection in tuple(self._connections.values()):
            connection.step(now)
            if connection.connects and connection.number in self._opened and connection.take_heard():
                self.post(Heard(connection.number))

    def pause_reading(self) -> None:
        """Read no more from the leader until `resume_reading`: the disk is behind."""
        for connection in self._connections.values():
            if connection.connects:
                connection.pause_reading()

    def resume_reading(self) -> None:
        """Read from the leader again."""
        for connection in self._connections.values():
            if connection.connects:
                connection.resume_reading()

    def stop(self) -> None:
        """Close all links, without events."""
        for attempt in self._attempts:
            attempt.cancel()
        for connection in tuple(self._connections.values()):
            self._forget(connection, "this node stops")
            connection.close("this node stops")
        self._catch_up.close()

    def accept(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take over an accepted connection whose first bytes have arrived. It speaks TLS if they begin with 0x16."""
        speaks_tls = first[0] == TLS_HANDSHAKE
        tls = self._server_tls
        host, *_ = transport.get_extra_info("peername") or ("?",)
        refusal = None if tls is None else tls.refusal(speaks_tls=speaks_tls)
        if tls is None and speaks_tls:
            refusal = "TLS, and there is no certificate"
        kind = "tls"
        if refusal is None and len(self._connections) >= MAX_ACCEPTED and not self._cut_oldest_silent():
            refusal, kind = f"{MAX_ACCEPTED} links are open", "limit"
        if refusal is not None:
            self._note(str(host), refusal)
            self._refusals.note(kind, str(host), f"reason={refusal}")
            transport.abort()
            return
        connection = self._new_connection(connects=False)
        if speaks_tls and tls is not None and tls.context is not None:
            secured = TlsTransport(transport, connection, tls, tls.context.current)
            transport.set_protocol(secured)
            pieces = memoryview(first)
            while pieces and not connection.is_closed:
                buffer = secured.get_buffer(-1)
                size = min(len(buffer), len(pieces))
                buffer[:size] = pieces[:size]
                secured.buffer_updated(size)
                pieces = pieces[size:]
        else:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            connection.feed(first)

    def _cut_oldest_silent(self) -> bool:
        """Cut the oldest accepted connection that has sent no message. Return whether there was one."""
        for connection in self._connections.values():
            if not connection.connects and not connection.is_greeted:
                connection.violation = "limit"
                connection.cut(f"{MAX_ACCEPTED} links are open, and this one has sent no HELLO")
                return True
        return False

    # Events of connections

    def opened(self, connection: LinkConnection) -> None:
        """The handshake is complete."""
        if self._settings.needs_certificate and not connection.connects and connection.certificate_subject is None:
            connection.violation = "tls"
            connection.refuse("this group needs TLS with a client certificate: set tls.enable and tls.client.certPath")
            return
        self._opened.add(connection.number)
        if connection.connects:
            self.post(Linked(connection.number, self._nodes[connection.number]))

    def received(self, connection: LinkConnection, message: Message) -> None:
        """A message arrived."""
        if isinstance(message, Data) and connection.is_last and self.copy(connection.number, message):
            return
        if isinstance(message, Hello) and not connection.connects:
            if problem := self._stranger(message):
                self._nodes.setdefault(connection.number, message.node)
                connection.violation = "node"
                connection.refuse(problem)
                return
            self._nodes[connection.number] = message.node
            self.problems.pop(message.node, None)
        self.post(Received(connection.number, message))

    def drained(self, connection: LinkConnection) -> None:
        """A connection takes bytes again."""
        if (feed := self._feeds.get(connection.number)) is not None:
            self._push(feed)

    def _push(self, *feeds: Feed) -> None:
        for feed in feeds:
            feed.push()
        self._last_frame.forget()

    def ended(self, connection: LinkConnection, reason: str) -> None:
        """A connection ended, but not by `close`."""
        number = connection.number
        if number not in self._connections:
            return
        was_opened, node = number in self._opened, self._nodes.get(number)
        self._forget(connection, reason, "" if connection.connects else connection.violation)
        if was_opened:
            self.post(Unlinked(number))
        elif connection.connects and node is not None:
            self.post(LinkFailed(node, refused=False))

    def _stranger(self, hello: Hello) -> str | None:
        """Return why a node may not link to this one."""
        if hello.node not in self._settings.peers:
            return f"haPeers of {self._settings.node} does not name {hello.node}: add it there, or correct haNodeId"
        if hello.segment_bytes != self._settings.segment_bytes:
            expected = f"mappedFileSizeCommitLog is {self._settings.segment_bytes} in this group"
            return f"{expected}, not {hello.segment_bytes}: set it, and start with an empty directory"
        return None

    async def _connect(self, node: str, peer: Peer) -> None:
        context = None if self._client_tls is None else self._client_tls.latest()
        connection = self._new_connection(connects=True)
        self._nodes[connection.number] = node
        reason, refused = "", False
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, peer.host, peer.port, ssl=context
                )
        except TimeoutError:
            reason = f"no connection within {CONNECT_TIMEOUT_S:g} s"
        except ConnectionRefusedError:
            reason, refused = "no process listens there", True
        except OSError as error:
            reason = reason_of(error)
        except ValueError as error:  # UnicodeError: the host is no valid name
            reason = f"{type(error).__name__}: {error}"
        if reason and connection.number in self._connections:
            self._forget(connection, f"{peer.address}: {reason}")
            self.post(LinkFailed(node, refused=refused))

    def _new_connection(self, *, connects: bool) -> LinkConnection:
        self._count += 1
        handshake = Handshake(self._settings.secret, connects=connects)
        connection = LinkConnection(self._count, self, handshake, self._buffer, connects=connects)
        self._connections[self._count] = connection
        return connection

    def _forget(self, connection: LinkConnection, reason: str, violation: str = "") -> None:
        """End what belongs to a connection. `violation`: the kind of reason for which this node refused the peer."""
        number = connection.number
        del self._connections[number]
        self._opened.discard(number)
        if (feed := self._feeds.pop(number, None)) is not None:
            feed.stop()
        node = self._nodes.pop(number, None)
        peer = node or connection.peer
        is_new = self._note(peer, reason)
        if violation:
            self._refusals.note(violation, connection.peer, f"peer={peer} reason={reason}")
        elif is_new and (node is not None or self._refusals.is_due("ended", connection.peer)):
            log.info("link ended peer=%s reason=%s", peer, reason)

    def _note(self, peer: str, reason: str) -> bool:
        """Keep a reason. Return whether it is a new one for this peer."""
        if self.problems.get(peer) == reason:
            return False
        if len(self.problems) >= MAX_REASONS:
            del self.problems[next(iter(self.problems))]
        self.problems[peer] = reason
        return True
