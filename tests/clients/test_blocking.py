"""The blocking shell, against a broker in this process."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import pytest

from broker.in_process import InProcessBroker, running
from clients import BrokerError, ConsumeFrom, ConsumerSettings, Message, MessageExt, TransactionState, blocking


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), {"messageDelayLevel": "1s 1s 1s"}) as broker:
        yield broker


def test_a_script_sends_and_reads(broker: InProcessBroker) -> None:
    """Without a loop of its own."""
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
    """They run in threads, and may block."""
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
        got = seen.get(timeout=20)
        assert (got.body, got.msg_id) == (b"seat 1", result.transaction_id)


def test_operators_have_a_shell_too(broker: InProcessBroker) -> None:
    """Coroutines of Admin by their names; errors are those of the asyncio class."""
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
        with pytest.raises(AttributeError):
            admin.no_such_thing()
