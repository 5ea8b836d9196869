"""Hooks: they see all sends, messages and connections, and change only what they may."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
import pytest

from skylarkmq import (
    BrokerError,
    ConnectionEvent,
    ConsumeFrom,
    ConsumerSettings,
    InvalidMessage,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
    connect,
)
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, ObservedEnd, ObservedSend, Received, Several, joined
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.message_id import encode_host, encode_offset_id
from tests.clients.cluster import running_cluster
from tests.clients.peer import refuse, until

INSIDE: ContextVar[str] = ContextVar("INSIDE", default="outside")


class Watcher(Hooks):
    """Records its calls, and adds a property to messages."""

    def __init__(self, name: str = "w") -> None:
        self.name = name
        self.sends: list[ObservedSend] = []
        self.errors: list[str] = []
        self.ends: list[ObservedEnd] = []
        self.receptions: list[Received] = []
        self.under_way = 0

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        self.under_way += 1
        token = INSIDE.set(self.name)
        properties = {"seen": self.name}
        send.messages = [msgspec.structs.replace(m, properties=m.properties | properties) for m in send.messages]
        try:
            yield
        except BaseException as error:
            self.errors.append(type(error).__name__)
            raise
        finally:
            INSIDE.reset(token)  # raises in any other context than that of the set
            self.under_way -= 1
            self.sends.append(send)

    def ended(self, end: ObservedEnd) -> None:
        self.ends.append(end)

    def received(self, received: Received) -> None:
        self.receptions.append(received)


class Broken(Hooks):
    """Raises in every callback."""

    def __init__(self, where: str) -> None:
        self.where = where

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        if self.where == "before":
            raise ValueError("before")
        yield
        raise ValueError("after")

    def ended(self, end: ObservedEnd) -> None:
        raise ValueError("ended")


async def test_every_kind_of_send_is_observed() -> None:
    """Awaited or not, single or batch, with or without a response: the hook is left when the result is there."""
    watcher = Watcher()
    settings = ProducerSettings(max_message_bytes=300)
    async with (
        running_cluster() as cluster,
        Producer("p", namesrv=cluster.namesrv, hooks=watcher, settings=settings) as producer,
    ):
        sent = await producer.send(Message("T", b"waited for"))
        later = await producer.send_nowait(Message("T", b"not waited for"))
        results = await producer.send_batch([Message("T", b"x" * 100) for _ in range(3)])
        await producer.send_oneway(Message("T", b"oneway"))
        await cluster.broker.wait_requests(RequestCode.SEND_MESSAGE_V2, 3)
        assert INSIDE.get() == "outside"
        assert len(results) > 1
        heard = [(len(send.messages), list(send.results), send.oneway) for send in watcher.sends]
        assert heard == [(1, [sent], False), (1, [later], False), (3, results, False), (1, [], True)]
        assert {(send.group, send.client_id) for send in watcher.sends} == {("p", producer.client.client_id)}
        for request in cluster.broker.requests_of(RequestCode.SEND_MESSAGE_V2):
            assert decode_properties(request.ext_fields()["i"])["seen"] == "w"
        assert b"seen\x01w\x02" in bytes(cluster.broker.requests_of(RequestCode.SEND_BATCH_MESSAGE)[0].body)
        assert watcher.under_way == 0


async def test_concurrent_sends_have_separate_contexts() -> None:
    """A hundred at once: no hook sees the context variable of another."""
    watcher = Watcher()
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv, hooks=watcher) as producer:
        sends = [producer.send_nowait(Message("T", b"%d" % n)) for n in range(100)]
        assert INSIDE.get() == "outside"
        await asyncio.gather(*sends)
        assert (len(watcher.sends), watcher.errors, watcher.under_way) == (100, [], 0)


async def test_failed_sends_are_observed() -> None:
    """Refused by the broker, rejected before the send, canceled by the caller."""
    watcher = Watcher()
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv, hooks=watcher) as producer:
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"))
        with pytest.raises(InvalidMessage):
            producer.send_nowait(Message("T", b"x" * 5_000_000))
        waiting = producer.send_nowait(Message("T", b"x"))
        waiting.cancel()
        await until(lambda: len(watcher.errors) == 3)
        assert watcher.errors == ["BrokerError", "InvalidMessage", "CancelledError"]
        assert watcher.under_way == 0


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_hook_that_fails_does_not_fail_the_send(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, with its traceback."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv, hooks=Broken(where)) as producer:
        await producer.send(Message("T", b"x"))
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"))
        assert f"ValueError: {where}" in caplog.text


async def test_half_messages_and_ends_of_transactions_are_observed(caplog: pytest.LogCaptureFixture) -> None:
    """The send as such, and the end after it was sent to the broker."""

    async def commit(_: str) -> TransactionState:
        return TransactionState.COMMIT

    async def checker(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with running_cluster() as cluster:
        cluster.broker.on(RequestCode.END_TRANSACTION, None)
        place = encode_offset_id(encode_host("127.0.0.1", 10911), 7)
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, {"msgId": place, "queueId": "0", "queueOffset": "5"})
        watcher = Watcher()
        hooks = Several(watcher, Broken("ended"))
        async with TransactionProducer("p", namesrv=cluster.namesrv, checker=checker, hooks=hooks) as producer:
            result = await producer.send_in_transaction(Message("T", b"x"), commit)
        (send,), (end,) = watcher.sends, watcher.ends
        assert send.messages[0].properties["TRAN_MSG"] == "true"
        assert (end.msg_id, end.offset_msg_id, end.state) == (result.transaction_id, place, "COMMIT")
        assert end.by_checker is False


async def test_received_messages_are_observed() -> None:
    """By poll all at once, in loops one by one; a poll without messages is not observed."""
    watcher = Watcher()
    settings = ConsumerSettings(suspend_s=0.5)
    async with running_cluster() as cluster:
        for n in range(4):
            cluster.broker.store("T", 0, b"%d" % n)
        first = {"namesrv": cluster.namesrv, "consume_from": ConsumeFrom.FIRST, "settings": settings, "hooks": watcher}
        async with PullConsumer("g", **first) as consumer:  # type: ignore[arg-type]  # shorthand of a test
            await consumer.assign((await consumer.queues("T"))[:1])
            await until(lambda: consumer.statistics().waiting == 4)
            assert len(await consumer.poll(2)) == 2
            async for message in consumer:
                assert message.body == b"2"
                break
            consumer.pause(*consumer.assignment)
        async with PushConsumer("h", **first) as pushed:  # type: ignore[arg-type]  # shorthand of a test
            await pushed.subscribe("T")
            async for _ in pushed:
                break
    assert [len(received.messages) for received in watcher.receptions] == [2, 1, 1]
    assert [received.group for received in watcher.receptions] == ["g", "g", "h"]
    assert all(received.begun_s > 1e9 for received in watcher.receptions)


def test_hooks_are_joined_only_if_there_are_several() -> None:
    """None stays None, one stays itself."""
    one, other = Watcher(), Watcher()
    assert joined(None, None) is None
    assert joined(None, one) is one
    assert isinstance(joined(one, other), Several)


class ConnectionWatcher(Hooks):
    """Records connection events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ConnectionEvent]] = []

    def connected(self, event: ConnectionEvent) -> None:
        self.events.append(("connected", event))

    def disconnected(self, event: ConnectionEvent) -> None:
        self.events.append(("disconnected", event))

    def of(self, address: str) -> list[str]:
        return [name for name, event in self.events if event.address == address]


async def test_connections_that_open_and_close_are_observed() -> None:
    """Those to name servers and brokers, with the reason; a reconnect is a new event."""
    watcher = ConnectionWatcher()
    async with running_cluster() as cluster:
        async with Producer("p", namesrv=cluster.namesrv, hooks=Several(watcher, Hooks())) as producer:
            await producer.send(Message("T", b"x"))
            assert [(name, event.is_name_server) for name, event in watcher.events] == [
                ("connected", True),
                ("connected", False),
            ]
            cluster.broker.hang_up()
            await until(lambda: watcher.of(cluster.broker.address) == ["connected", "disconnected"])
            assert watcher.events[-1][1].reason
            await producer.send(Message("T", b"y"))
            assert watcher.of(cluster.broker.address) == ["connected", "disconnected", "connected"]
            client_id = producer.client.client_id
        assert watcher.of(cluster.namesrv) == ["connected", "disconnected"]
        assert {event.client_id for _, event in watcher.events} == {client_id}


async def test_connections_of_a_shared_client_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """To the hooks of `connect`, however many objects use them; a hook that raises is logged."""

    class Failing(ConnectionWatcher):
        def connected(self, event: ConnectionEvent) -> None:
            super().connected(event)
            raise ValueError("bad hook")

    watcher = Failing()
    async with (
        running_cluster() as cluster,
        connect(cluster.namesrv, hooks=watcher) as mq,
        mq.producer("p") as producer,
        mq.pull_consumer("g", topics="T"),
    ):
        await producer.send(Message("T", b"x"))
        assert watcher.of(cluster.broker.address) == ["connected"]
        assert watcher.of(cluster.namesrv) == ["connected"]
    assert "ValueError: bad hook" in caplog.text
