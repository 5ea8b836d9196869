"""Transactions for tests: all their parts over a store, and producers as peers without sockets.

parts = Transacted(it)
half = parts.send(b"body")
response = parts.end(half)
"""

from collections.abc import Container
from typing import Any, Final

from skylarkmq.broker.access.message_rights import AllMessages, MessageRights
from skylarkmq.broker.app.sections.delivery import TransactionEnds
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.delivery.transactions.check_round import CheckRound, CheckTotals
from skylarkmq.broker.delivery.transactions.loading import Loading
from skylarkmq.broker.delivery.transactions.progress import Offsets
from skylarkmq.broker.delivery.transactions.transactions import Transactions, TransactionsConfig
from skylarkmq.broker.metadata.client_sessions import ClientMember, ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.processors.end_transaction import EndTransactionProcessor
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.transactions import EndTransactionHeader
from skylarkmq.protocol.message import encode_properties, property_value
from skylarkmq.protocol.message_id import encode_host
from tests.harness.peer import Peer
from tests.harness.stores import Opened, message

HALF: Final = SystemTopic.TRANSACTION_HALF
OP: Final = SystemTopic.TRANSACTION_OP
DISCARDED: Final = SystemTopic.TRANSACTION_CHECK_MAX
HOST: Final = encode_host("10.0.0.1", 10911)
GROUP: Final = "PG"
DELAYS_MS: Final = (1_000, 5_000)
COMMIT: Final = 8
ROLLBACK: Final = 12
LIMIT: Final = 1 << 20


class Transacted:
    """The transactions of one store, wired as in a broker; open half messages are loaded if `is_loaded`."""

    def __init__(
        self,
        it: Opened,
        offsets: ConsumerOffsetTable | None = None,
        *,
        is_loaded: bool = True,
        rights: MessageRights | None = None,
        **settings: Any,
    ) -> None:
        self.it = it
        self.offsets = offsets or ConsumerOffsetTable(OffsetsConfig(), it.clock)
        self.config = TransactionsConfig(broker_ip="10.0.0.1", broker_name="b", store_host=HOST, **settings)
        self.transactions = Transactions(self.config)
        self.puts = InternalPuts(it.store)
        self.deferral = Deferral(DELAYS_MS, half=self.transactions.half)
        self.sessions = ClientSessions()
        ends = TransactionEnds(
            self.transactions, it.store, self.puts, self.deferral.defer, self.offsets, self.sessions, it.clock, it.clock
        )
        self.endings, self.recheck, self.progress, self.checks = ends.endings, ends.recheck, ends.progress, ends.checks
        self.pool = Pool("end_transaction", 1_000)
        self.processor = EndTransactionProcessor(
            self.endings, self.recheck, self.pool, Latencies(), LIMIT, rights or AllMessages()
        )
        self.dispatcher = Dispatcher()
        for code, handler in self.processor.handlers().items():
            self.dispatcher.register([code], handler, self.pool)
        self.dispatcher.at_batch_end(self.processor.finish_iteration)
        self.dispatcher.after_responses(it.store.make_visible)
        self.peer = Peer(self.dispatcher)
        self.totals = CheckTotals()
        if is_loaded:
            self.load()

    # clients

    def producer(self, group: str = GROUP, port: int = 5000, topics: Container[str] | None = None) -> Peer:
        """Return another client, which is a producer of the group and may send to these topics, or to all."""
        peer = Peer(self.dispatcher, address=("127.0.0.8", port))
        member = ClientMember(peer.connection, f"p{port}", "JAVA", 409, 0)
        if topics is not None:
            member.may_send = topics.__contains__
        self.sessions.join_producers(group, member)
        return peer

    def half(self, body: bytes = b"half", topic: str = "T", queue_id: int = 0, **properties: str) -> Append:
        """Return a half message as the send path makes it, not put yet."""
        known = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"U{body.decode()}", "TAGS": "tag"}
        every = known | properties
        append = message(body, topic, queue_id, "tag", properties=encode_properties(every).encode(), flag=7, sys_flag=4)
        append.born_timestamp = self.it.clock.now_ms
        assert self.deferral.defer(append, every, self.it.clock.now_ms) is None
        return append

    def send(self, body: bytes = b"half", topic: str = "T", queue_id: int = 0, **properties: str) -> Append:
        """Store a half message and return it."""
        append = self.half(body, topic, queue_id, **properties)
        self.it.put(append)
        self.transactions.settle()
        return append

    def request(self, half: Append, decision: int = COMMIT, **fields: Any) -> RemotingCommand:
        """Return an END_TRANSACTION (37) for a half message or a copy of one."""
        values: dict[str, Any] = {
            "producer_group": GROUP,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.physical_offset,
            "commit_or_rollback": decision,
            "msg_id": property_value(half.properties.decode(), "UNIQ_KEY") or "",
        }
        return RemotingCommand.request(RequestCode.END_TRANSACTION, EndTransactionHeader(**values | fields))

    def end(self, half: Append, decision: int = COMMIT, **fields: Any) -> RemotingCommand:
        """Send an END_TRANSACTION (37), and return its response, which must come within the iteration."""
        return self.peer.call(self.request(half, decision, **fields))

    # background work

    def load(self) -> None:
        """Load the open half messages."""
        begin = self.progress.begin(self._ends(self.it.store.min_offset), self._ends(self.it.store.max_offset))
        end = self._ends(self.it.store.max_offset)
        loading = Loading(self.it.store, self.transactions, begin, end)
        while loading.step():
            pass
        self.progress.mark(end)
        self.transactions.loaded.set()

    def check_round(self) -> None:
        """Run a whole check round."""
        store, clock = self.it.store, self.it.clock
        one = CheckRound(store, self.transactions, self.sessions.producers_to, self.totals, clock.now_ms)
        while one.step(clock.now_ms):
            pass

    def save(self) -> None:
        """Commit the current offsets."""
        store = self.it.store
        self.progress.mark(self._ends(store.max_offset))
        self.progress.step(self.transactions.halves.begin, store.max_physical_offset, store.max_physical_offset)

    def open_offsets(self) -> list[int]:
        """Return the queue offsets of open half messages."""
        end = self.it.store.max_offset(HALF, 0) or 0
        return [offset for offset in range(end) if self.transactions.halves.is_open_at(offset)]

    @staticmethod
    def _ends(of: Any) -> Offsets:
        return Offsets(of(HALF, 0) or 0, of(OP, 0) or 0)


def received_checks(peer: Peer) -> list[RemotingCommand]:
    """Return the transaction checks that a producer received since the last call."""
    return [command for command in peer.take() if command.code == RequestCode.CHECK_TRANSACTION_STATE]
