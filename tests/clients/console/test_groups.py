"""Pages and actions of consumer groups."""

import asyncio

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.console.cluster import Cluster, Target
from skylarkmq.clients.console.fields import time_ms
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.sdk import Client, ConsumeFrom, Message, MessageQueue, Producer, PushConsumer, ReceivedMessage
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from tests.clients.console.conftest import Browser, notice_of, opened, text_of
from tests.clients.console.fake_cluster import FakeAdmin, made_of


async def test_a_group_is_created_changed_and_deleted(browser: Browser, broker: InProcessBroker) -> None:
    """Checkboxes that are not checked are off; fields that the form lacks keep their values."""
    await browser.get("/group-form")
    page = await browser.act(
        "/groups", group="billing", retry_max_times=3, retry_queue_nums=1, consume_enable="yes", broadcast="yes"
    )
    assert notice_of(page) == "Group billing is stored on all brokers."
    form = await browser.get("/group-form?group=billing")
    assert 'value="3"' in form.text
    assert 'id="broadcast" name="broadcast" type="checkbox" value="yes" checked' in form.text
    await browser.act("/groups", group="billing", exists="yes", retry_max_times=5, retry_queue_nums=1)
    async with Admin(namesrv=broker.namesrv) as admin:
        config = (await admin.groups())["billing"]
        assert (config.retry_max_times, config.consume_enable, config.consume_broadcast_enable) == (5, False, False)
        assert notice_of(await browser.act("/groups/billing/delete")) == "Group billing is deleted."
        assert "billing" not in await admin.groups()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"group": ""}, "The name is empty"),
        ({"group": "a b"}, "not a valid group name"),
        ({"retry_max_times": "-2"}, "-1"),
    ],
)
async def test_a_value_that_is_not_allowed_is_one_line(browser: Browser, changed: dict[str, str], reason: str) -> None:
    """The form's page shows the reason."""
    await browser.get("/group-form")
    fields = {"group": "bad", "retry_max_times": "3", "retry_queue_nums": "1"} | changed
    page = await browser.post("/groups", **fields)
    assert reason in notice_of(page)


async def test_a_group_shows_its_lag_by_queue_and_member(browser: Browser, broker: InProcessBroker) -> None:
    """Queues come with the member that reads them, the largest lag first; the list has lag and members."""

    released = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await released.wait()

    async with Client(broker.namesrv) as client, Client(broker.namesrv) as members, Admin(client=client) as admin:
        await admin.create_topic("Lagging", queues=2)
        async with Producer("p", client=client) as producer:
            for number in range(5):
                await producer.send(Message("Lagging", b"x"), queue=MessageQueue("Lagging", "broker-a", number % 2))
        first = ConsumeFrom.FIRST
        async with PushConsumer("slow", handler=handle, client=members, topics="Lagging", consume_from=first):
            await admin.set_offset("slow", MessageQueue("Lagging", "broker-a", 0), 0)
            page = await browser.get("/groups/slow")
            while f"Lagging broker-a 0 3 0 3 – {members.client_id}" not in text_of(page):  # until it has got the queue
                page = await browser.get("/groups/slow")
            assert "CLUSTERING" in page.text
            assert "Reset offsets" in page.text
            assert "slow 1" in text_of(await browser.get("/groups?q=slow"))
            released.set()
        assert members.client_id not in text_of(await browser.get("/groups/slow"))


async def test_offsets_are_reset_to_a_time_and_to_the_end(browser: Browser, broker: InProcessBroker) -> None:
    """Both forms of the reset move all queues of the topic."""
    async with Client(broker.namesrv) as client, Admin(client=client) as admin:
        await admin.create_topic("Reset", queues=1)
        queue = MessageQueue("Reset", "broker-a", 0)
        async with Producer("p", client=client) as producer:
            for _ in range(3):
                await producer.send(Message("Reset", b"x"))
        await admin.create_group(SubscriptionGroupConfig("mover"))
        await admin.set_offset("mover", queue, 1)
        assert "Reset broker-a 0 3 1 2" in text_of(await browser.get("/groups/mover"))
        page = await browser.act("/groups/mover/reset", topic="Reset", to="end")
        assert "is at the end of each queue in 1 queues of Reset" in notice_of(page)
        assert (await admin.group_offsets("mover", "Reset"))[queue].consumer_offset == 3
        await browser.act("/groups/mover/reset", topic="Reset", to="time", time="2020-01-01T00:00:00")
        assert (await admin.group_offsets("mover", "Reset"))[queue].consumer_offset == 0
        for fields, reason in (
            ({"topic": "Reset", "to": "time", "time": ""}, "The time is empty"),
            ({"topic": "Reset", "to": "time", "time": "soon"}, "'soon' is not a time"),
            ({"topic": "", "to": "end"}, "The topic is empty"),
        ):
            assert reason in notice_of(await browser.post("/groups/mover/reset", **fields))
        page = await browser.act("/groups/mover/reset", topic="Missing", to="end")
        assert notice_of(page).startswith("Not done: no name server")


async def test_an_unknown_group_is_404(browser: Browser) -> None:
    """The page has the reason and the next step."""
    page = await browser.get("/groups/missing")
    assert (page.status_code, "Check its name" in notice_of(page)) == (404, True)


async def test_many_groups_are_pages_of_fifty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is read once, and members and lag for the rows of the page only."""
    monkeypatch.setattr(Cluster, "at", made_of(FakeAdmin([], [f"group-{number:05}" for number in range(30_000)])))
    async with opened(ConsoleOptions(Target("127.0.0.1:1"))) as browser:
        page = await browser.get("/groups?page=600")
        assert "group-29999" in page.text
        assert "Groups: 30,000, page 600 of 600" in text_of(page)
        assert len(page.content) < 200_000


def test_times_of_forms_are_utc() -> None:
    """A time without a zone is UTC; other texts are refused."""
    assert time_ms("2024-05-01T12:00") == time_ms("2024-05-01T14:00:00+02:00") == 1_714_564_800_000
    for text, reason in (
        ("9999999-01-01", "is not a time"),
        ("0000-01-01", "is not a time"),
        ("9" * 5_000, "is not a time"),
        ("0001-01-01T00:00:00+14:00", "is not a time|before 1970"),
        ("1969-12-31T23:59:59.999", "before 1970"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            time_ms(text)
    assert time_ms("9999-12-31T23:59:59") == 253_402_300_799_000
