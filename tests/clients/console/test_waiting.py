"""Delayed and timer messages, transactions in doubt, and their actions."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.console.waiting_messages import timers_in, transactions_in
from skylarkmq.clients.sdk import Client, Message, Producer, TransactionProducer, TransactionState
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.message import MessageExt
from tests.clients.console.conftest import Browser, notice_of, text_of

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    settings = {"recallMessageEnable": "true", "transactionCheckInterval": 600_000}
    with running(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


@pytest.fixture
async def client(broker: InProcessBroker) -> AsyncIterator[Client]:
    async with Client(broker.namesrv) as client, Admin(client=client) as admin:
        await admin.create_topic("Later", queues=1)
        yield client


async def test_a_timer_message_is_listed_and_canceled(browser: Browser, client: Client) -> None:
    """A message with a time of delivery is listed until it is canceled; `recallMessageEnable` allows that."""
    async with Producer("p", client=client) as producer:
        kept = await producer.send(Message("Later", b"kept <b>"), delay=HOUR)
        gone = await producer.send(Message("Later", b"gone"), delay=HOUR)
    page = await browser.get("/delayed")
    assert kept.msg_id in page.text
    assert "kept &lt;b&gt;" in page.text
    page = await browser.act("/delayed/cancel", topic="Later", handle=gone.recall_handle)
    assert f"Message {gone.msg_id} is canceled" in notice_of(page)
    assert f">{gone.msg_id}</a>" not in page.text
    assert f">{kept.msg_id}</a>" in page.text


async def test_a_wrong_handle_is_one_line(browser: Browser, client: Client) -> None:
    """The result names the cause; nothing is canceled."""
    async with Producer("p", client=client) as producer:
        await producer.send(Message("Later", b"x"), delay=HOUR)
    await browser.get("/delayed")
    for fields, reason in (
        ({"topic": "Later", "handle": "zz"}, "is no recall handle"),
        ({"topic": "", "handle": "zz"}, "The topic is empty"),
    ):
        page = await browser.post("/delayed/cancel", **fields)
        if 'name="confirmed"' in page.text:
            page = await browser.act("/delayed/cancel", **fields)
        assert reason in notice_of(page)


async def test_messages_of_delay_levels_are_counted(browser: Browser, client: Client) -> None:
    """A level with waiting messages links to them."""
    async with Producer("p", client=client) as producer:
        await producer.send(Message("Later", b"level 18"), delay_level=18)
    page = await browser.get("/delayed")
    assert "broker-a 18 1 Show level 18" in text_of(page)
    path = "/messages?topic=SCHEDULE_TOPIC_XXXX&by=offset&broker=broker-a&queue=17&offset=0"
    assert "level 18" in (await browser.get(path)).text


async def test_a_transaction_in_doubt_is_listed_and_checked_again(
    browser: Browser, client: Client, broker: InProcessBroker
) -> None:
    """An undecided transaction is listed with its group; decided ones are not."""

    async def checker(message: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    async def unknown(transaction_id: str) -> TransactionState:
        return TransactionState.UNKNOWN

    async def commit(transaction_id: str) -> TransactionState:
        return TransactionState.COMMIT

    async def roll_back(transaction_id: str) -> TransactionState:
        return TransactionState.ROLLBACK

    assert "Every transaction is decided" in (await browser.get("/transactions")).text
    async with TransactionProducer("payers", checker=checker, client=client) as producer:
        doubt = await producer.send_in_transaction(Message("Later", b"in doubt"), unknown)
        await producer.send_in_transaction(Message("Later", b"committed"), commit)
        await producer.send_in_transaction(Message("Later", b"rolled back"), roll_back)
        page = await browser.get("/transactions")
        assert f"{doubt.send.msg_id} Later payers" in text_of(page)
        assert "in doubt" in page.text
        assert "committed" not in page.text
        assert "rolled back" not in page.text
        page = await browser.act("/transactions/check", id=doubt.send.offset_msg_id)
        assert f"transaction {doubt.send.msg_id} are asked again" in notice_of(page)
        assert page.text.count(f">{doubt.send.msg_id}</a>") == 1


async def test_a_check_of_another_message_is_refused(browser: Browser, client: Client) -> None:
    """Only half messages are checked."""
    async with Producer("p", client=client) as producer:
        result = await producer.send(Message("Later", b"plain"))
        await producer.send(Message("Later", b"x"), delay=HOUR)
    await browser.get("/delayed")
    page = await browser.act("/transactions/check", id=result.offset_msg_id)
    assert notice_of(page).startswith("Not done: broker")


def stored(offset: int, body: bytes = b"", **properties: str) -> MessageExt:
    return MessageExt("t", 0, offset, offset, body, properties, 0, 0, 0, ("::", 1), 0, ("::", 1), 0, 0, 0, 1)


def test_a_rolled_timer_counts_once_and_a_delivered_one_not() -> None:
    """The last copy of a message counts; a deletion removes it; a due or invalid one does not wait."""
    rolled = [stored(at, UNIQ_KEY="a", REAL_TOPIC="T", TIMER_OUT_MS="9000") for at in (0, 1)]
    messages = [
        *rolled,
        stored(2, UNIQ_KEY="b", REAL_TOPIC="T", TIMER_OUT_MS="9000"),
        stored(3, UNIQ_KEY="c", REAL_TOPIC="T", TIMER_OUT_MS="1000"),
        stored(4, UNIQ_KEY="d", REAL_TOPIC="T", TIMER_OUT_MS="soon"),
        stored(5, REAL_TOPIC="T", TIMER_OUT_MS="8000"),
        stored(6, REAL_TOPIC="T", TIMER_OUT_MS="9000", TIMER_DEL_UNIQKEY="T+b"),
    ]
    found = timers_in(messages, "broker-a", 2_000)
    assert [(timer.message.queue_offset, timer.handle is None) for timer in found] == [(1, False), (5, True)]


def test_a_decision_ends_a_transaction_and_its_copies() -> None:
    """Ops of RocketMQ name several offsets; a copy is decided with its root."""
    halves = [
        stored(0, UNIQ_KEY="a"),
        stored(1, UNIQ_KEY="b", TRANSACTION_CHECK_TIMES="2"),
        stored(2, UNIQ_KEY="c"),
        stored(3, UNIQ_KEY="c", TRAN_PREPARED_HALF_OFFSET="2"),
        stored(4, UNIQ_KEY="b", TRANSACTION_CHECK_TIMES="3", TRAN_PREPARED_HALF_OFFSET="1"),
    ]
    ops = [stored(0, b"0,7,"), stored(1, b"2")]
    found = transactions_in(halves, ops, "broker-a")
    assert [(each.message.queue_offset, each.checks) for each in found] == [(4, 3)]
