"""`skylarkmq.blocking`, against a broker in this process."""

import inspect
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from queue import SimpleQueue
from typing import get_type_hints

import pytest

import skylarkmq.clients.sdk as asynchronous
from skylarkmq import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    MessageExt,
    TransactionState,
    blocking,
)
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.base.background_loop import background_loop
from skylarkmq.clients.sdk.connection.participant import Participant
from tests.harness.limits import WAIT_LIMIT_S


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), {"messageDelayLevel": "1s 1s 1s"}) as broker:
        yield broker


def test_a_script_sends_and_consumes(broker: InProcessBroker) -> None:
    """Without an event loop."""
    with (
        blocking.Producer("p", namesrv=broker.namesrv) as producer,
        blocking.PullConsumer("g", namesrv=broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        sent = producer.send(Message("Scripts", b"0"), message_group="one")
        (batch,) = producer.send_batch([Message("Scripts", b"%d" % n) for n in (1, 2)], message_group="one")
        assert (batch.queue, batch.queue_offset) == (sent.queue, 1)
        consumer.assign([sent.queue])
        consumer.seek(sent.queue, 1)
        messages = consumer.poll(2, timeout_s=10)
        assert [message.body for message in messages] == [b"1", b"2"]
        consumer.commit()
        consumer.seek_to_time(sent.queue, datetime.now(UTC) - timedelta(hours=1))
        assert next(iter(consumer)).body == b"0"


def test_handlers_and_transactions_are_plain_functions(broker: InProcessBroker) -> None:
    """They run in threads, so they may block."""
    seen: SimpleQueue[MessageExt] = SimpleQueue()
    with (
        blocking.PushConsumer(
            "handlers",
            namesrv=broker.namesrv,
            handler=seen.put,
            consume_from=ConsumeFrom.FIRST,
            settings=ConsumerSettings(rebalance_interval_s=0.1),
        ) as consumer,
        blocking.TransactionProducer(
            "tx", namesrv=broker.namesrv, checker=lambda _: TransactionState.UNKNOWN
        ) as producer,
    ):
        consumer.subscribe("Bookings")
        result = producer.send_in_transaction(Message("Bookings", b"seat 1"), lambda _: TransactionState.COMMIT)
        got = seen.get(timeout=WAIT_LIMIT_S)
        assert (got.body, got.msg_id) == (b"seat 1", result.transaction_id)


def test_admin_has_blocking_calls(broker: InProcessBroker) -> None:
    """With the names and errors of the asyncio class."""
    with blocking.Admin(namesrv=broker.namesrv) as admin, blocking.Producer("p", namesrv=broker.namesrv) as producer:
        admin.create_topic("Made", queues=3)
        assert len(admin.queues("Made")) == 3
        since = datetime.now(UTC) - timedelta(seconds=5)
        sent = producer.send(Message("Made", b"x", keys=["k1"]))
        assert admin.message_of_id(sent.offset_msg_id).body == b"x"
        assert [message.msg_id for message in admin.messages_of_key("Made", "k1")] == [sent.msg_id]
        until = datetime.now(UTC) + timedelta(seconds=5)
        assert [message.body for message in admin.messages_between("Made", since, until)] == [b"x"]
        assert admin.messages_of_key("Made", "no such key") == []
        admin.delete_topic("Made")
        assert "Made" not in admin.topics()
        with pytest.raises(BrokerError, match="illegal characters"):
            admin.create_topic("not a name")
        assert admin.masters() == {"broker-a": broker.address}


def test_a_pull_consumer_seeks_pauses_and_commits(broker: InProcessBroker) -> None:
    """Back and ahead; a paused queue returns no message."""
    with (
        blocking.Producer("p", namesrv=broker.namesrv) as producer,
        blocking.PullConsumer("walker", namesrv=broker.namesrv, auto_commit=False) as consumer,
    ):
        sends = [producer.send_nowait(Message("Walks", b"%d" % n), message_group="one") for n in range(4)]
        (queue,) = {sent.result(timeout=WAIT_LIMIT_S).queue for sent in sends}
        assert [sent.result().queue_offset for sent in sends] == [0, 1, 2, 3]
        assert queue in producer.publish_queues("Walks")
        assert producer.statistics().sent == 4
        consumer.assign([queue])
        assert consumer.assignment == (queue,)
        assert consumer.seek_to_begin(queue) == 0
        assert [message.body for message in consumer.poll(2, timeout_s=10)] == [b"0", b"1"]
        assert consumer.committed(queue) == 0  # no commit yet, but the first message still exists
        consumer.commit()
        assert consumer.committed(queue) == 2
        consumer.pause(queue)
        assert consumer.seek_to_end(queue) == 4
        producer.send(Message("Walks", b"4"), message_group="one")
        assert consumer.poll(timeout_s=0.1) == []
        consumer.resume(queue)
        assert [message.body for message in consumer.poll(timeout_s=10)] == [b"4"]
        assert consumer.statistics().handled == 3


def test_a_loop_ends_when_another_thread_stops_it(broker: InProcessBroker) -> None:
    """`wait_stopped` returns, too."""
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message("Loops", b"x"))
    consumer = blocking.PushConsumer("looper", namesrv=broker.namesrv, consume_from=ConsumeFrom.FIRST, auto_ack=True)
    seen: SimpleQueue[bytes] = SimpleQueue()

    def loop() -> None:
        with consumer:
            consumer.subscribe("Loops")
            for message in consumer:
                seen.put(message.body)

    threads = [threading.Thread(target=loop), threading.Thread(target=consumer.wait_stopped)]
    for thread in threads:
        thread.start()
    assert seen.get(timeout=WAIT_LIMIT_S) == b"x"
    consumer.stop()
    for thread in threads:
        thread.join(timeout=WAIT_LIMIT_S)
        assert not thread.is_alive()


def test_an_abandoned_loop_may_be_collected_on_the_background_loop(broker: InProcessBroker) -> None:
    """The garbage collector runs in any thread. Blocking calls work afterwards, and the message is delivered again."""
    with (
        blocking.connect(broker.namesrv) as mq,
        mq.producer("p") as producer,
        mq.consumer("abandoned", topics="Abandoned", consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        producer.send(Message("Abandoned", b"x"))
        loops = [iter(consumer)]
        assert next(loops[0]).body == b"x"
        dropped = threading.Event()

        def drop() -> None:
            loops.clear()
            dropped.set()

        background_loop().call_soon_threadsafe(drop)
        assert dropped.wait(WAIT_LIMIT_S)
        assert next(iter(consumer)).body == b"x"


def test_a_blocking_call_on_the_background_loop_is_refused(broker: InProcessBroker) -> None:
    """It would wait for itself forever. Hooks, for example, are called there."""
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        errors: SimpleQueue[ClientError] = SimpleQueue()

        def call() -> None:
            try:
                producer.statistics()
            except ClientError as error:
                errors.put(error)

        background_loop().call_soon_threadsafe(call)
        assert "a blocking call would stop" in str(errors.get(timeout=WAIT_LIMIT_S))
        assert producer.statistics().sent == 0


def test_concurrency_is_the_number_of_handler_threads(broker: InProcessBroker) -> None:
    """Independent of the number of processors."""
    together = threading.Barrier(30)

    def handle(_: MessageExt) -> None:
        together.wait(timeout=WAIT_LIMIT_S)

    settings = ConsumerSettings(concurrency=30, rebalance_interval_s=0.1)
    with (
        blocking.PushConsumer(
            "crowd",
            namesrv=broker.namesrv,
            handler=handle,
            consume_from=ConsumeFrom.FIRST,
            settings=settings,
        ) as consumer,
        blocking.Producer("p", namesrv=broker.namesrv) as producer,
    ):
        producer.send_batch([Message("Crowds", b"%d" % n) for n in range(30)])
        consumer.subscribe("Crowds")
        together_by = time.monotonic() + WAIT_LIMIT_S
        while consumer.statistics().handled < 30:
            assert time.monotonic() < together_by
            assert not together.broken


SCRIPT = """
import signal, sys
from skylarkmq import ConsumeFrom, blocking

signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background of a shell

def handle(message):
    print("got", message.body.decode(), flush=True)

with blocking.PushConsumer("script", namesrv=sys.argv[1], handler=handle, consume_from=ConsumeFrom.FIRST) as consumer:
    consumer.subscribe("Interrupts")
    try:
        consumer.wait_stopped()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("stopped", flush=True)
"""


@pytest.mark.daemon
def test_an_interrupt_stops_a_script_in_order(broker: InProcessBroker) -> None:
    """Ctrl-C ends the wait. After the block the offset is committed."""
    with blocking.Producer("p", namesrv=broker.namesrv) as producer, blocking.Admin(namesrv=broker.namesrv) as admin:
        sent = producer.send(Message("Interrupts", b"x"))
        script = subprocess.Popen(
            [sys.executable, "-X", "dev", "-c", SCRIPT, broker.namesrv], stdout=subprocess.PIPE, text=True
        )
        assert script.stdout is not None
        with script, script.stdout as said:
            assert said.readline() == "got x\n"
            script.send_signal(signal.SIGINT)
            assert said.read() == "interrupted\nstopped\n"
        assert script.returncode == 0
        assert admin.group_offsets("script", "Interrupts")[sent.queue].consumer_offset == 1


PAIRS = [
    (asynchronous.Producer, blocking.Producer),
    (asynchronous.TransactionProducer, blocking.TransactionProducer),
    (asynchronous.PullConsumer, blocking.PullConsumer),
    (asynchronous.PushConsumer, blocking.PushConsumer),
    (asynchronous.Admin, blocking.Admin),
]


def sections_of(admin: type) -> dict[str, type]:
    """Return the sections of an Admin, by name."""
    members = vars(admin).items()
    return {name: get_type_hints(its.func)["return"] for name, its in members if isinstance(its, cached_property)}


SECTIONS = [(kind, sections_of(blocking.Admin)[name]) for name, kind in sections_of(asynchronous.Admin).items()]


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("original", "shell"), [*PAIRS, *SECTIONS], ids=lambda kind: kind.__module__ + "." + kind.__name__
)
def test_a_blocking_class_has_the_methods_of_the_original(original: type, shell: type) -> None:
    """Methods and properties, with the same arguments; also loops. Admin has the same sections."""
    assert public(shell) == public(original)
    assert ("__iter__" in dir(shell)) is ("__aiter__" in dir(original))
    for name in public(original):
        method = getattr(original, name)
        if callable(method):
            assert list(inspect.signature(getattr(shell, name)).parameters) == list(
                inspect.signature(method).parameters
            )


@pytest.mark.parametrize("kind", [asynchronous.Admin, blocking.Admin])
def test_every_call_of_admin_is_a_shortcut_of_a_section(kind: type) -> None:
    """Its docstring names the method of the section, which takes the same arguments."""
    sections = sections_of(kind)
    assert sections.keys() == sections_of(asynchronous.Admin).keys()
    shortcuts = public(kind) - public(Participant) - sections.keys()
    assert len(shortcuts) == 20
    for name in shortcuts:
        call = getattr(kind, name)
        (found,) = re.findall(r"`(\w+)\.(\w+)`", inspect.getdoc(call) or "")
        original = getattr(sections[found[0]], found[1])
        assert list(inspect.signature(call).parameters) == list(inspect.signature(original).parameters)


def test_the_sections_of_a_blocking_admin(broker: InProcessBroker) -> None:
    """Calls, lists instead of asynchronous generators, properties and errors."""
    with blocking.Admin(namesrv=broker.namesrv) as admin, blocking.Producer("p", namesrv=broker.namesrv) as producer:
        admin.topic_config.create("Sections", queues=1)
        since = datetime.now(UTC) - timedelta(seconds=5)
        sent = producer.send(Message("Sections", b"x"))
        until = datetime.now(UTC) + timedelta(seconds=5)
        assert [message.body for message in admin.messages.between("Sections", since, until)] == [b"x"]
        assert admin.topic_config.queues("Sections") == (sent.queue,)
        assert admin.topic_config.offsets("Sections")[sent.queue].max_offset == 1
        assert admin.brokers.runtime_info(broker.address)["brokerVersionDesc"]
        assert admin.name_servers.addresses == (broker.namesrv,)
        assert admin.offsets is admin.offsets
        with pytest.raises(BrokerError):
            admin.group_config.members("nobody")


@pytest.mark.parametrize(("original", "blocked"), PAIRS, ids=lambda kind: kind.__module__ + "." + kind.__name__)
def test_the_blocking_class_takes_the_options_of_the_original(original: type, blocked: type) -> None:
    """Both constructors name the same structure of options, and the same arguments besides."""
    assert list(inspect.signature(blocked).parameters) == list(inspect.signature(original).parameters)
    assert options_of(blocked.__init__) == options_of(original.__init__)  # type: ignore[misc]  # of a class


def options_of(function: Callable[..., object]) -> object:
    return get_type_hints(function)["options"]


def test_the_blocking_connection_has_the_methods_and_options_of_the_original() -> None:
    """`connect` and each method of its result."""
    assert options_of(blocking.connect) == options_of(asynchronous.connect)
    original, blocked = asynchronous.MessageQueueClient, blocking.MessageQueueClient
    for name in ("producer", "transaction_producer", "consumer", "pull_consumer"):
        assert options_of(getattr(blocked, name)) == options_of(getattr(original, name))
        assert list(inspect.signature(getattr(blocked, name)).parameters) == list(
            inspect.signature(getattr(original, name)).parameters
        )
    assert {name for name in dir(blocked) if name[0] != "_"} == {name for name in dir(original) if name[0] != "_"}


def test_a_blocking_connection_serves_all_objects(broker: InProcessBroker) -> None:
    """They share one client, and stop with the connection if they still run."""
    seen: SimpleQueue[bytes] = SimpleQueue()
    settings = ConsumerSettings(rebalance_interval_s=0.1)
    with blocking.connect(broker.namesrv, namespace="team-a") as mq:
        producer = mq.transaction_producer("p", checker=lambda _: TransactionState.UNKNOWN)
        producer.start()
        consumer = mq.consumer(
            "all", handler=lambda message: seen.put(message.body), consume_from=ConsumeFrom.FIRST, settings=settings
        )
        consumer.start()
        consumer.subscribe("Shared")
        producer.send_in_transaction(Message("Shared", b"x"), lambda _: TransactionState.COMMIT)
        assert seen.get(timeout=WAIT_LIMIT_S) == b"x"
        with mq.producer("q") as other, mq.pull_consumer("r") as reader, mq.admin() as admin:
            queues = reader.queues("Shared")
            assert other.send(Message("Shared", b"y")).queue in queues
            assert "team-a%Shared" in admin.topics()
        assert len(mq.statistics().brokers) == 1
    with pytest.raises(ClientClosed):
        producer.send(Message("Shared", b"z"))
