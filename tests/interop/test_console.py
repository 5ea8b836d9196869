"""The console shows and administers clusters of RocketMQ's own brokers: every page opens, actions act."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.rendering import NAVIGATION
from skylarkmq.clients.sdk import Client, Message, MessageQueue, Producer, TransactionProducer, TransactionState
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.message import MessageExt, PropertyName
from tests.clients.console.conftest import notice_of, opened, text_of
from tests.interop.brokers import APACHE_VERSIONS, BrokerUnderTest, running_broker

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Shown", "readers"


@pytest.fixture(scope="module", params=APACHE_VERSIONS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(f"apache-{request.param}", tmp_path_factory.mktemp("broker")) as running:
        yield running


async def undecided(message: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def unknown(transaction_id: str) -> TransactionState:
    return TransactionState.UNKNOWN


async def fill(client: Client, admin: Admin) -> str:
    """Give each page something to show, and return the offset id of a message."""
    (name,) = await admin.masters()
    for topic in (TOPIC, f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"):
        await admin.create_topic(topic, queues=1)
    await admin.create_group(SubscriptionGroupConfig(GROUP))
    async with (
        Producer("p", client=client) as producer,
        TransactionProducer("payers", checker=undecided, client=client) as payers,
    ):
        sent = await producer.send(Message(TOPIC, b'{"a": 1}', keys="key-1", tags="t"))
        await producer.send(Message(TOPIC, b"later"), delay_level=18)
        origin = {PropertyName.RETRY_TOPIC: TOPIC}
        await producer.send(Message(f"%DLQ%{GROUP}", b"letter", properties=origin))
        await payers.send_in_transaction(Message(TOPIC, b"in doubt"), unknown)
    await admin.set_offset(GROUP, MessageQueue(TOPIC, name, 0), 0)
    return sent.offset_msg_id


async def test_each_page_opens(broker: BrokerUnderTest, tmp_path: Path) -> None:
    """All pages have status 200 and show the content of the cluster."""
    async with (
        Client(broker.namesrv) as client,
        Admin(client=client) as admin,
        opened(ConsoleOptions(Target(broker.namesrv))) as browser,
    ):
        offset_id = await fill(client, admin)
        shown = {
            **{path: "" for _, path, _ in NAVIGATION},
            f"/topics/{TOPIC}": "Queues: 1",
            f"/topic-form?topic={TOPIC}": "Change topic",
            f"/topics/{TOPIC}/send": "Send a test message",
            f"/groups/{GROUP}": TOPIC,
            f"/group-form?group={GROUP}": "Change group",
            f"/messages?topic={TOPIC}&by=time": "Messages: 1",
            f"/messages?topic={TOPIC}&by=key&key=key-1": "key-1",
            f"/messages/{offset_id}": '"a": 1',
            f"/messages/{offset_id}?show=groups": GROUP,
            f"/messages/{offset_id}?show=trace": "Trace",
            "/dead-letters": GROUP,
            f"/dead-letters/{GROUP}": "letter",
            "/delayed": "By delay level",  # 4.9.7 lists a level after its first delivery
            "/transactions": "in doubt",
            "/settings?q=brokerName": "brokerName",
        }
        for path, text in shown.items():
            page = await browser.get(path)
            assert (page.status_code, text in text_of(page)) == (200, True), f"{path}: {text_of(page)}"


async def test_actions_act(broker: BrokerUnderTest) -> None:
    """A topic and a group are created, used, reset and deleted."""
    async with opened(ConsoleOptions(Target(broker.namesrv))) as browser, Admin(namesrv=broker.namesrv) as admin:
        await browser.get("/topic-form")
        page = await browser.act("/topics", topic="Made", write_queues=1, read_queues=1, perm=6)
        assert notice_of(page) == "Topic Made is stored on all brokers."
        (queue,) = await admin.queues("Made")
        page = await browser.act("/topics/Made/send", body="x", keys="k", tags="t")
        assert "is stored in queue Made@" in notice_of(page)
        page = await browser.act("/groups", group="made", retry_max_times=3, retry_queue_nums=1, consume_enable="yes")
        assert notice_of(page) == "Group made is stored on all brokers."
        await admin.set_offset("made", queue, 0)  # 4.9.7 resets only committed offsets
        page = await browser.act("/groups/made/reset", topic="Made", to="end")
        assert "is at the end of each queue" in notice_of(page)
        assert (await admin.group_offsets("made", "Made"))[queue].consumer_offset == 1
        assert notice_of(await browser.act("/groups/made/delete")) == "Group made is deleted."
        assert notice_of(await browser.act("/topics/Made/delete")) == "Topic Made is deleted."
