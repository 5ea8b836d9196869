"""Searches for messages, and the page of one message."""

import re
from collections.abc import AsyncIterator

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.console.cluster import Cluster, Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.sdk import Client, Message, MessageQueue, Producer, SendResult
from skylarkmq.clients.sdk.admin import queue_ranges
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.message_bodies import MAX_CHARACTERS, best_form, hex_dump, preview_of, view_of
from skylarkmq.clients.sdk.admin.queue_ranges import QueueRange, part_of
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.message_id import encode_host, encode_offset_id
from tests.clients.console.conftest import Browser, notice_of, opened, text_of
from tests.clients.console.fake_cluster import FakeAdmin, made_of

SCRIPT = "<script>alert(1)</script>"
QUEUE = MessageQueue("Sought", "broker-a", 0)


@pytest.fixture
async def client(broker: InProcessBroker) -> AsyncIterator[Client]:
    async with Client(broker.namesrv) as client:
        yield client


async def sent(
    client: Client, *messages: Message, queue: MessageQueue = QUEUE, trace: bool = False
) -> list[SendResult]:
    """Return the results of sends to one queue of a topic that is created."""
    async with Admin(client=client) as admin, Producer("p", client=client, trace=trace) as producer:
        await admin.create_topic(queue.topic, queues=2)
        return [await producer.send(message, queue=queue) for message in messages]


async def test_messages_are_found_by_key_and_by_either_id(browser: Browser, client: Client) -> None:
    """A key, the unique id and the offset id lead to the message."""
    (result,) = await sent(client, Message("Sought", b"found me", keys="key-1"))
    for text in ("key-1", result.msg_id, result.offset_msg_id):
        page = await browser.get(f"/messages?topic=Sought&by=key&key={text}")
        assert "found me" in page.text, text
        assert f'href="/messages/{result.offset_msg_id}"' in page.text
    assert "No message is found" in (await browser.get("/messages?topic=Sought&by=key&key=other")).text


async def test_messages_of_a_time_are_paged_over_all_queues(browser: Browser, client: Client) -> None:
    """A page is a part of the queues, one after the other."""
    for queue_id in (0, 1):
        texts = [Message("Paged", b"%d-%d" % (queue_id, number)) for number in range(40)]
        await sent(client, *texts, queue=MessageQueue("Paged", "broker-a", queue_id))
    page = await browser.get("/messages?topic=Paged&by=time&page=2")
    assert "Messages: 80, page 2 of 2" in text_of(page)
    assert "<td>1-10</td>" in page.text
    assert "<td>1-9</td>" not in page.text
    assert "Messages: 0" in text_of(await browser.get("/messages?topic=Paged&by=time&since=2999-01-01T00:00"))
    assert "Messages: 80" in text_of(await browser.get("/messages?topic=Paged&by=time&until=2999-01-01T00:00"))


async def test_messages_are_read_from_an_offset(browser: Browser, client: Client) -> None:
    """Queue and offset give the rest of the queue."""
    await sent(
        client,
        *(Message("Offsets", b"n%d" % number) for number in range(3)),
        queue=MessageQueue("Offsets", "broker-a", 1),
    )
    path = "/messages?topic=Offsets&by=offset&broker=broker-a&queue=1&offset="
    assert "Messages: 2" in text_of(await browser.get(f"{path}1"))
    page = await browser.get(f"{path}9")
    assert (page.status_code, "has offsets from 0 to 2, not 9" in notice_of(page)) == (400, True)


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("topic=Missing&by=time", 404, "Create it"),
        ("topic=Missing&by=key&key=k", 404, "Create it"),
        ("topic=T&by=offset&broker=b&queue=x&offset=1", 400, "The queue is 'x'"),
        ("topic=T&by=offset&broker=b&queue=1&offset=-1", 400, "The offset is '-1'"),
        ("topic=T&by=time&since=now", 400, "'now' is not a time"),
    ],
)
async def test_a_search_that_fails_is_one_line(browser: Browser, query: str, status: int, reason: str) -> None:
    """The page has the reason."""
    page = await browser.get(f"/messages?{query}")
    assert (page.status_code, reason in notice_of(page)) == (status, True)


async def test_a_message_shows_its_parts_escaped(browser: Browser, client: Client) -> None:
    """Body, keys and properties of any producer are text."""
    (result,) = await sent(
        client, Message("Sought", SCRIPT.encode(), keys=SCRIPT, tags=SCRIPT, properties={SCRIPT: f'"{SCRIPT}\x07'})
    )
    for path in (f"/messages/{result.offset_msg_id}", f"/messages?topic=Sought&by=key&key={SCRIPT}"):
        page = await browser.get(path)
        assert page.status_code == 200
        assert "&lt;script&gt;" in page.text
        assert "<script>alert" not in page.text
        assert "\x07" not in page.text


@pytest.mark.parametrize(
    ("form", "shown"), [("", '{\n  "a": 1\n}'), ("text", '{"a": 1}'), ("json", '{\n  "a": 1\n}'), ("hex", "7b 22 61")]
)
async def test_a_body_is_shown_in_each_form(browser: Browser, client: Client, form: str, shown: str) -> None:
    """JSON is the form of a JSON body unless another one is chosen."""
    (result,) = await sent(client, Message("Sought", b'{"a": 1}'))
    page = await browser.get(f"/messages/{result.offset_msg_id}?as={form}")
    assert shown in page.text.replace("&#34;", '"')


async def test_a_large_body_keeps_its_page_small(browser: Browser, client: Client) -> None:
    """The page says that the body is cut, in each form."""
    (result,) = await sent(client, Message("Sought", b"<" * 900_000))
    for form in ("text", "hex"):
        page = await browser.get(f"/messages/{result.offset_msg_id}?as={form}")
        assert "Only the beginning is shown" in page.text
        assert len(page.content) < 200_000
    assert "not JSON" in (await browser.get(f"/messages/{result.offset_msg_id}?as=json")).text


async def test_bodies_that_are_too_large_are_left_out(
    browser: Browser, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page reads a bounded number of bytes, and says what it left out."""
    monkeypatch.setattr(queue_ranges, "MAX_READ_BYTES", 100)
    await sent(client, *(Message("Heavy", b"x" * 60) for _ in range(70)), queue=MessageQueue("Heavy", "broker-a", 0))
    page = await browser.get("/messages?topic=Heavy&by=time")
    assert "too large" in page.text
    assert page.text.count("<td>xxxx") == 32


async def test_a_message_shows_its_trace_and_its_groups(browser: Browser, client: Client) -> None:
    """The trace has the send; the groups are those that have consumed the topic."""
    async with Admin(client=client) as admin:
        (result,) = await sent(client, Message("Traced", b"x"), queue=MessageQueue("Traced", "broker-a", 0), trace=True)
        page = await browser.get(f"/messages/{result.offset_msg_id}?show=trace")
        assert re.search(r"Pub\s+p\s+", text_of(page))
        await admin.set_offset("TOOLS_CONSUMER", MessageQueue("Traced", "broker-a", 0), 1)
        assert "TOOLS_CONSUMER" in text_of(await browser.get(f"/messages/{result.offset_msg_id}?show=groups"))


async def test_a_message_without_a_trace_says_so(browser: Browser, client: Client) -> None:
    """The page names the option that stores traces."""
    (result,) = await sent(client, Message("Sought", b"x"))
    assert "option trace" in text_of(await browser.get(f"/messages/{result.offset_msg_id}?show=trace"))


async def test_an_id_leads_to_brokers_of_the_cluster_only(browser: Browser) -> None:
    """The address in an id of a link is not connected to unless it is a registered broker."""
    elsewhere = encode_offset_id(encode_host("192.0.2.7", 80), 0)
    for text, reason in ((elsewhere, "192.0.2.7:80, which is not registered"), ("zz", "is not a message id")):
        page = await browser.get(f"/messages/{text}")
        assert (page.status_code, reason in notice_of(page)) == (400, True)


async def test_an_invalid_address_of_a_broker_is_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that returns odd addresses does not break the page of a message."""
    odd = ["host", ":", "127.0.0.1:port", "x" * 300 + ":1", "a..b:1", "127.0.0.1:" + "9" * 5_000, "nul\0:1"]
    table = {"b": BrokerData("c", "b", dict(enumerate(odd)))}

    async def cluster_info() -> ClusterInfo:
        return ClusterInfo(broker_addr_table=table)

    admin = FakeAdmin([], [])
    monkeypatch.setattr(admin, "cluster", cluster_info, raising=False)
    monkeypatch.setattr(Cluster, "at", made_of(admin))
    async with opened(ConsoleOptions(Target("127.0.0.1:1"))) as browser:
        page = await browser.get(f"/messages/{encode_offset_id(encode_host('127.0.0.1', 1), 0)}")
        assert (page.status_code, "which is not registered" in notice_of(page)) == (400, True)


def test_a_page_is_a_part_of_the_ranges() -> None:
    """Ranges are concatenated; empty ones and gaps before a range do not count."""
    ranges = [QueueRange(QUEUE, 10, 40), QueueRange(QUEUE, 5, 5), QueueRange(QUEUE, 7, 60)]
    parts = [[part[1:] for part in part_of(ranges, start, start + 50)] for start in (0, 50)]
    assert parts == [[(10, 40), (7, 27)], [(27, 60)]]


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"text", "text"), (b"", "text"), (b"{broken", "text"), (b"[1]", "json"), (b"\xff\xfe", "hex"),
        (b"\x00", "hex"), (("é" * 3_000).encode(), "text"), (b"a" + "é".encode() * 3_000, "text"),
        (b"[" * 100_000, "text"),
    ],
)  # fmt: skip
def test_the_best_form_suits_the_body(body: bytes, form: str) -> None:
    """JSON, text, or hex for anything else; a character cut by the sample is still text."""
    assert best_form(body) == form


def test_views_are_bounded() -> None:
    """Every form of a long body has a bounded length."""
    assert view_of(b"x" * 1_000_000, "text")[1:3] == ("x" * MAX_CHARACTERS, True)
    assert len(view_of(b"x" * 1_000_000, "hex").text) < 50_000
    assert len(view_of(b"[" + b"1," * 400_000 + b"1]", "json").text) == MAX_CHARACTERS
    assert hex_dump(b"0123456789abcdef\n").splitlines()[1].split() == ["00000010", "0a", "."]
    assert preview_of(b"a\n  b") == "a b"
    assert preview_of(b"x" * 1_000).endswith("x…")
