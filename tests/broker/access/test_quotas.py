"""Quotas per second, with a clock that the test advances: at the limit a request is served, one more waits."""

import time

import msgspec
import pytest

from skylarkmq.broker.access import quotas as quotas_module
from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.config import QuotaConfig
from skylarkmq.broker.access.gate import Gate
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.quotas import SHORTEST_WAIT_NS, Quotas
from skylarkmq.broker.access.token_buckets import NANOS
from skylarkmq.broker.remoting.admission import OVERLOAD, Pool
from skylarkmq.broker.remoting.connection import HELD_READ_BYTES, HELD_S, Connection
from skylarkmq.broker.remoting.dispatch import Dispatcher, MustWait
from skylarkmq.broker.remoting.read_scheduling import RECEIVE_BUFFER_BYTES
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.send import SendMessageV2Header
from tests.harness.broker_parts import pull
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.waiting import until

MS = 1_000_000
ALICE = Caller("alice", Proof.SIGNATURE)
BOB = Caller("bob", Proof.SIGNATURE)


class Clock:
    """A monotonic clock in ns."""

    def __init__(self) -> None:
        self.ns = 1_000 * NANOS

    def __call__(self) -> int:
        return self.ns


class Quoted:
    """Quotas with a clock, and a dispatcher without processors for connections."""

    def __init__(self, **settings: int) -> None:
        self.clock = Clock()
        self.refusals = Refusals()
        self.config = QuotaConfig(**({"quota_burst_mills": 1_000} | settings))
        self.delivered: dict[str, int] = {}  # bytes of each group
        delivered = self.delivered
        self.quotas = Quotas(self.config, self.refusals, self.clock, lambda _topic, group: delivered.get(group, 0))
        self.dispatcher = Dispatcher()

    def connection(self, host: str = "10.0.0.1") -> Connection:
        connection = Peer(self.dispatcher, None, (host, 4321)).connection
        connection.arrived_s = self.clock.ns / NANOS
        return connection

    def outcome(self, connection: Connection, command: RemotingCommand, caller: Caller = ANONYMOUS) -> int | str:
        """Return the wait in ms, 0 without a wait, or the code and remark of the refusal."""
        try:
            self.quotas.admit(connection, command, caller)
        except MustWait as held:
            return round(held.wait_s * 1000)
        except RequestError as error:
            return f"{error.code.value} {error.remark}"
        return 0


def send(topic: str = "T", body: bytes = b"x", code: int = RequestCode.SEND_MESSAGE_V2) -> RemotingCommand:
    header = SendMessageV2Header(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return RemotingCommand.request(code, header, body)


async def test_the_quota_is_served_and_one_more_request_waits() -> None:
    """Ten requests at once, the eleventh a tenth of a second later."""
    quoted = Quoted(quota_client_requests_per_second=10)
    connection = quoted.connection()
    assert [quoted.outcome(connection, send()) for _ in range(11)] == [0] * 10 + [100]


async def test_a_waiting_request_is_served_when_it_is_repeated() -> None:
    """Its tokens are reserved; another request of the same client does not overtake it."""
    quoted = Quoted(quota_client_requests_per_second=10)
    first, second = quoted.connection(), quoted.connection()
    for _ in range(10):
        quoted.outcome(first, send())
    waiting, later = send(), send()
    assert quoted.outcome(first, waiting) == 100
    assert quoted.outcome(second, later) == 200
    quoted.clock.ns += 100 * MS
    assert quoted.outcome(first, waiting) == 0
    assert quoted.outcome(second, send()) == 200


async def test_clients_have_quotas_of_their_own() -> None:
    """A client at its quota does not affect another address; connections of one address share a quota."""
    quoted = Quoted(quota_client_requests_per_second=1)
    assert quoted.outcome(quoted.connection(), send()) == 0
    assert quoted.outcome(quoted.connection(), send()) == 1_000
    assert quoted.outcome(quoted.connection("10.0.0.2"), send()) == 0


async def test_a_request_that_would_wait_too_long_is_refused() -> None:
    """At quotaMaxWaitMills it waits; one more gets SYSTEM_BUSY, takes no tokens, and the remark names the quota."""
    quoted = Quoted(quota_client_requests_per_second=10, quota_max_wait_mills=300)
    assert [quoted.outcome(quoted.connection(), send()) for _ in range(13)][-3:] == [100, 200, 300]
    remark = f"2 {OVERLOAD}, quotaClientRequestsPerSecond=10 of client 10.0.0.1"
    assert [quoted.outcome(quoted.connection(), send()) for _ in range(2)] == [remark, remark]
    assert quoted.refusals.by_kind == {("client", "requests"): 2}
    assert quoted.quotas.statistics().delayed == {("client", "requests"): 3}
    quoted.clock.ns += 100 * MS
    assert quoted.outcome(quoted.connection(), send()) == 300


async def test_the_time_since_the_arrival_counts() -> None:
    """A request that was deferred behind others is refused at the same age."""
    quoted = Quoted(quota_client_requests_per_second=10, quota_max_wait_mills=300)
    connection = quoted.connection()
    for _ in range(10):
        quoted.outcome(connection, send())
    quoted.clock.ns += 250 * MS  # two more tokens, and a half
    assert [quoted.outcome(connection, send()) for _ in range(3)] == [0, 0, 50]
    assert isinstance(quoted.outcome(connection, send()), str)


@pytest.mark.parametrize(
    "code", [RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.END_TRANSACTION]
)
async def test_a_request_that_ends_work_waits_and_is_never_refused(code: RequestCode) -> None:
    """It waits for quotaMaxWaitMills at most, and then counts."""
    quoted = Quoted(quota_client_requests_per_second=1, quota_max_wait_mills=300)
    connection, command = quoted.connection(), RemotingCommand.request(code)
    quoted.outcome(connection, send())
    assert quoted.outcome(connection, command) == 300
    quoted.clock.ns += 300 * MS
    assert quoted.outcome(connection, command) == 0
    assert quoted.outcome(connection, RemotingCommand.request(code)) == 0
    assert quoted.refusals.by_kind == {}


async def test_short_waits_are_extended() -> None:
    """A timer for each request would cost more than the request."""
    quoted = Quoted(quota_client_requests_per_second=100_000, quota_burst_mills=1)
    connection = quoted.connection()
    outcomes = [quoted.outcome(connection, send()) for _ in range(101)]
    assert outcomes == [0] * 100 + [SHORTEST_WAIT_NS // MS]


async def test_bytes_received_are_body_and_header() -> None:
    """At the limit a request is served, one byte more waits."""
    command = send(body=b"x" * 1_000)
    size = len(command.body) + command.ext_bytes
    quoted = Quoted(quota_client_bytes_in_per_second=2 * size)
    connection = quoted.connection()
    assert [quoted.outcome(connection, send(body=b"x" * 1_000)) for _ in range(3)] == [0, 0, 500]


async def test_bytes_sent_count_with_the_next_request() -> None:
    """A response above the quota makes the next request wait until it is paid."""
    quoted = Quoted(quota_client_bytes_out_per_second=1_000)
    connection = quoted.connection()
    assert quoted.outcome(connection, pull()) == 0
    connection.write(b"x" * 1_500)
    assert quoted.outcome(connection, pull()) == 501
    quoted.clock.ns += 501 * MS


async def test_bytes_sent_count_when_the_connection_is_closed() -> None:
    """A new connection of the same client does not begin with a full bucket."""
    quoted = Quoted(quota_client_bytes_out_per_second=1_000)
    connection = quoted.connection()
    quoted.outcome(connection, pull())
    connection.write(b"x" * 1_500)
    quoted.quotas.forget(connection)
    assert quoted.outcome(quoted.connection(), pull()) == 501


async def test_accounts_have_quotas_of_their_own() -> None:
    """They apply to all addresses of an account, and not to requests without one."""
    quoted = Quoted(quota_account_requests_per_second=1)
    assert quoted.outcome(quoted.connection(), send(), ALICE) == 0
    assert quoted.outcome(quoted.connection("10.0.0.2"), send(), ALICE) == 1_000
    assert quoted.outcome(quoted.connection(), send(), BOB) == 0
    assert [quoted.outcome(quoted.connection(), send()) for _ in range(3)] == [0, 0, 0]


async def test_topics_have_quotas_of_their_own() -> None:
    """Sends in both forms and pulls count for their topic; other requests do not."""
    quoted = Quoted(quota_topic_requests_per_second=1)
    connection = quoted.connection()
    assert quoted.outcome(connection, send("A")) == 0
    assert quoted.outcome(connection, pull(topic="A")) == 1_000
    assert quoted.outcome(connection, pull(topic="B")) == 0
    assert quoted.outcome(connection, send("B")) == 1_000
    assert quoted.outcome(connection, RemotingCommand.request(RequestCode.HEART_BEAT)) == 0


async def test_bytes_delivered_from_a_topic_count_with_the_next_pull_of_the_group() -> None:
    """Each group's messages count for the topic."""
    quoted = Quoted(quota_topic_bytes_out_per_second=1_000)
    delivered = quoted.delivered
    delivered["G"] = 500
    connection = quoted.connection()
    assert quoted.outcome(connection, pull()) == 0
    delivered["G"] += 1_500
    assert quoted.outcome(connection, pull()) == 501
    quoted.quotas.forget_topic("T")
    delivered["G"] = 0
    assert quoted.outcome(connection, pull()) == 501


async def test_names_in_pulls_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls of invented topics and groups displace the oldest; names too long for a topic or group are not kept."""
    monkeypatch.setattr(quotas_module, "MAX_KEYS", 3)
    quoted = Quoted(quota_topic_bytes_out_per_second=1_000)
    connection = quoted.connection()
    for number in range(5):
        assert quoted.outcome(connection, pull(topic=f"T{number}", consumer_group="G")) == 0
    assert list(quoted.quotas._delivered_before) == [("T2", "G"), ("T3", "G"), ("T4", "G")]
    before = quoted.quotas.statistics().meters["topic"].keys
    for topic, group in (("t" * 256, "G"), ("T", "g" * 256)):
        assert quoted.outcome(connection, pull(topic=topic, consumer_group=group)) == 0
    assert len(quoted.quotas._delivered_before) == 3
    assert quoted.outcome(connection, send("t" * 1_000_000)) == 0
    assert quoted.quotas.statistics().meters["topic"].keys == before + 1  # T


async def test_a_change_applies_at_once() -> None:
    """A higher quota serves what would have waited; 0 turns it off."""
    quoted = Quoted(quota_client_requests_per_second=1)
    connection = quoted.connection()
    quoted.outcome(connection, send())
    for rate, expected in ((3, [0, 0, 0, 333]), (0, [0] * 4)):
        quoted.quotas.configure(msgspec.structs.replace(quoted.config, quota_client_requests_per_second=rate))
        assert [quoted.outcome(connection, send()) for _ in range(4)] == expected
    assert not quoted.quotas.is_active


# ----------------------------------------------------------------------------------------------------------------- runs


async def test_a_run_is_served_up_to_the_quota() -> None:
    """One check for many requests; the first one above the quota is examined by itself."""
    quoted = Quoted(quota_client_requests_per_second=10)
    connection, commands = quoted.connection(), [send() for _ in range(12)]
    assert quoted.quotas.admit_run(connection, commands, [ANONYMOUS] * 12) == 10
    assert quoted.quotas.admit_run(connection, commands[10:], [ANONYMOUS] * 2) == 0
    assert quoted.outcome(connection, commands[10]) == 100
    quoted.clock.ns += 200 * MS
    assert quoted.quotas.admit_run(connection, commands[10:], [ANONYMOUS] * 2) == 2
    assert quoted.quotas.admit_run(connection, [send()], [ANONYMOUS]) == 0


async def test_a_run_has_one_account_and_one_topic() -> None:
    """Where quotas differ by them, a run ends at another one."""
    quoted = Quoted(quota_account_requests_per_second=10, quota_topic_requests_per_second=10)
    connection = quoted.connection()
    commands = [send("A"), send("A"), send("A"), send("B")]
    assert quoted.quotas.admit_run(connection, commands, [ALICE, ALICE, BOB, BOB]) == 2
    assert quoted.quotas.admit_run(connection, commands[2:], [BOB, BOB]) == 1


async def test_a_run_of_pulls_with_a_quota_on_bytes_sent_has_one_pull() -> None:
    """The bytes of its response are known before the next one."""
    quoted = Quoted(quota_client_bytes_out_per_second=1_000)
    assert quoted.quotas.admit_run(quoted.connection(), [pull(), pull()], [ANONYMOUS] * 2) == 1


# ----------------------------------------------------------------------------------------------------------- connection


async def test_a_held_connection_serves_its_requests_later_and_in_order() -> None:
    """The requests of a read above the quota are deferred, the connection is not read from, and every request gets its
    response."""
    refusals = Refusals()
    config = QuotaConfig(quota_client_requests_per_second=1_000, quota_burst_mills=10)
    dispatcher = Dispatcher()
    peer = Peer(dispatcher)
    served: list[int] = []

    def serve(_source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        served.append(command.opaque)
        return RemotingCommand.response()

    dispatcher.register([RequestCode.SEND_MESSAGE_V2], serve, Pool("send", 100))
    quotas = Quotas(config, refusals, lambda: round(peer.connection.arrived_s * NANOS) + spent[0])
    spent = [0]
    dispatcher.guard = Gate(None, pacing=quotas)
    peer.send(*(send() for _ in range(30)))
    assert served == list(range(1, 11))
    assert (peer.connection.is_held, peer.transport.reading) == (True, False)
    assert (peer.selector.statistics().held, peer.selector.statistics().paused) == (1, 0)
    spent[0] = NANOS // 1000 * 10  # ten tokens
    await until(lambda: len(served) == 20)
    spent[0] *= 2
    await until(lambda: len(served) == 30)
    peer.take()
    assert [response.opaque for response in peer.received] == list(range(1, 31))
    assert {response.code for response in peer.received} == {ResponseCode.SUCCESS}
    assert (peer.connection.is_held, peer.transport.reading) == (False, True)


async def test_a_connection_that_was_held_is_read_in_small_pieces_for_a_second() -> None:
    """More would only be decoded, deferred and kept in memory."""
    config = QuotaConfig(quota_client_requests_per_second=1_000, quota_burst_mills=1)
    dispatcher = Dispatcher()
    peer = Peer(dispatcher)
    dispatcher.register([RequestCode.SEND_MESSAGE_V2], lambda *_: RemotingCommand.response(), Pool("send", 100))
    dispatcher.guard = Gate(None, pacing=Quotas(config, Refusals(), time.monotonic_ns))
    reads = peer.selector.read_scheduler

    def largest_read() -> int:
        reads.window = reads.receive_buffer
        return len(peer.connection.get_buffer(-1))

    assert largest_read() == RECEIVE_BUFFER_BYTES
    peer.send(*(send() for _ in range(3)))
    assert largest_read() == HELD_READ_BYTES
    await until(lambda: not peer.connection.is_held)
    fill = frame({"code": 99_999, "opaque": 0, "flag": 2}, b"x" * 1_000)
    largest_read()
    peer.deliver((fill * 100)[:HELD_READ_BYTES])
    assert not peer.transport.reading  # it has filled its window: the others come first
    await until(lambda: peer.transport.reading)
    assert peer.connection._last_hold_s is not None
    peer.connection._last_hold_s -= HELD_S
    peer.send(RemotingCommand.request(99_999))
    assert largest_read() == RECEIVE_BUFFER_BYTES


async def test_a_held_connection_that_is_closed_serves_nothing_more() -> None:
    """Its timer is canceled, and its deferred requests are dropped."""
    config = QuotaConfig(quota_client_requests_per_second=1_000, quota_burst_mills=1)
    dispatcher = Dispatcher()
    peer = Peer(dispatcher)
    dispatcher.register([RequestCode.SEND_MESSAGE_V2], lambda *_: RemotingCommand.response(), Pool("send", 100))
    quotas = Quotas(config, Refusals(), lambda: round(peer.connection.arrived_s * NANOS))
    dispatcher.guard = Gate(None, pacing=quotas)
    peer.selector.registry.on_close(quotas.forget)
    peer.send(send(), send())
    assert repr(quotas) == "<Quotas ['client'] reserved=1>"
    assert peer.selector.statistics().held == 1
    peer.connection.connection_lost(None)
    assert (peer.connection.is_held, peer.selector.registry.deferred_bytes) == (False, 0)
    assert repr(quotas) == "<Quotas ['client'] reserved=0>"
