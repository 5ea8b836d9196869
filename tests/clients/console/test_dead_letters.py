"""Dead letters: the list, the letters of a group, and sending them again."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.console.app.application import application
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.jobs import MAX_JOBS, MAX_RUNNING, Job, Jobs
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.sdk import Client, InvalidArgument, Message, MessageQueue, Producer
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.dead_letters import copy_of
from skylarkmq.clients.sdk.base.errors import ConnectionLost
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.message import MessageExt, PropertyName
from tests.clients.console.conftest import Browser, notice_of, opened_application, text_of


@pytest.fixture
async def client(broker: InProcessBroker) -> AsyncIterator[Client]:
    async with Client(broker.namesrv) as client:
        yield client


async def with_letters(client: Client, group: str, *bodies: bytes) -> None:
    """Create a group with dead letters of the topic Source."""
    async with Admin(client=client) as admin, Producer("p", client=client) as producer:
        await admin.create_group(SubscriptionGroupConfig(group))
        for topic in ("Source", f"%DLQ%{group}", f"%RETRY%{group}"):
            await admin.create_topic(topic, queues=1)
        origin = {PropertyName.RETRY_TOPIC: "Source", "color": "red"}
        for body in bodies:
            await producer.send(Message(f"%DLQ%{group}", body, keys="k", tags="t", properties=origin))


async def stored(client: Client, topic: str) -> list[MessageExt]:
    async with Admin(client=client) as admin:
        queue = MessageQueue(topic, "broker-a", 0)
        return (await admin.messages.pull(queue, 0, 32)).messages


async def test_groups_with_dead_letters_are_listed(browser: Browser, client: Client) -> None:
    """The list has the number of letters, the page of a group the letters."""
    await with_letters(client, "listed", b"one", b"two")
    assert "listed 2 " in text_of(await browser.get("/dead-letters?q=listed"))
    page = await browser.get("/dead-letters/listed")
    assert "Source 0 t k one" in text_of(page)
    assert "Dead letters: 2" in text_of(page)
    assert "Dead letters: 1" in text_of(await browser.get("/dead-letters/listed?text=two"))
    assert "Dead letters: 0" in text_of(await browser.get("/dead-letters/listed?since=2999-01-01T00:00"))
    assert "has no dead letters" in text_of(await browser.get("/dead-letters/unknown"))


async def test_one_letter_is_sent_again_to_its_group(browser: Browser, client: Client) -> None:
    """The copy is in the retry topic, with the origin's topic, and counts its deliveries from 0."""
    await with_letters(client, "single", b"again")
    (letter,) = await stored(client, "%DLQ%single")
    await browser.get("/dead-letters/single")
    page = await browser.act("/dead-letters/single/resend", id=letter.offset_msg_id)
    assert f"Message {letter.msg_id} is sent again" in notice_of(page)
    (copy,) = await stored(client, "%RETRY%single")
    assert (copy.body, copy.msg_id, copy.keys, copy.tags, copy.reconsume_times) == (
        b"again", letter.msg_id, ["k"], "t", 0
    )  # fmt: skip
    assert copy.properties[PropertyName.RETRY_TOPIC] == "Source"
    assert copy.properties["color"] == "red"


async def test_one_letter_is_sent_again_to_its_topic(browser: Browser, client: Client) -> None:
    """All groups of the topic get the copy, which is no redelivery."""
    await with_letters(client, "broad", b"to all")
    (letter,) = await stored(client, "%DLQ%broad")
    await browser.get("/dead-letters/broad")
    await browser.act("/dead-letters/broad/resend", id=letter.offset_msg_id, target="topic")
    copies = [message for message in await stored(client, "Source") if message.body == b"to all"]
    assert [PropertyName.RETRY_TOPIC in message.properties for message in copies] == [False]


async def test_all_letters_of_a_filter_are_sent_again(broker: InProcessBroker, client: Client) -> None:
    """The job sends those that match; the page shows its result, and a filter for all sends all."""
    app = application(ConsoleOptions(Target(broker.namesrv)))
    async with opened_application(app) as browser:
        await with_letters(client, "many", *(b"letter %d" % number for number in range(40)))
        await browser.get("/dead-letters/many")
        question = await browser.post("/dead-letters/many/resend-all", text="letter 1")
        assert "those of the filter, up to 40" in question.text
        page = await browser.act("/dead-letters/many/resend-all", text="letter 1")
        assert "being sent" in notice_of(page)
        job = app.state.console.cluster_of(app.state.console.sessions.of(None)).jobs.get("resend many")
        await job.wait()
        assert "11 dead letters of many are sent again." in (await browser.live("/dead-letters/many")).text
        bodies = [message.body for message in await stored(client, "%RETRY%many")]
        assert bodies == [b"letter %d" % number for number in (1, *range(10, 20))]
        await browser.act("/dead-letters/many/resend-all", text="letter 39")
        job = app.state.console.cluster_of(app.state.console.sessions.of(None)).jobs.get("resend many")
        await job.wait()
        assert "1 dead letter of many is sent again." in (await browser.live("/dead-letters/many")).text


@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [
        ("resend", {"id": ""}, "The id is empty"),
        ("resend", {"id": "1", "target": "moon"}, "'moon' is not a place"),
        ("resend-all", {"since": "soon"}, "'soon' is not a time"),
    ],
)
async def test_a_value_that_is_not_allowed_is_one_line(
    browser: Browser, path: str, fields: dict[str, str], reason: str
) -> None:
    """The page of the group shows the reason."""
    await browser.get("/topic-form")
    assert reason in notice_of(await browser.post(f"/dead-letters/any/{path}", **fields))


async def test_only_dead_letters_are_sent_again(browser: Browser, client: Client) -> None:
    """A message of another topic is refused, and so is a letter without its origin."""
    async with Admin(client=client) as admin, Producer("p", client=client) as producer:
        await admin.create_topic("Plain", queues=1)
        await admin.create_topic("%DLQ%lost", queues=1)
        plain = await producer.send(Message("Plain", b"x"))
        lost = await producer.send(Message("%DLQ%lost", b"x"))
    await browser.get("/topic-form")
    for result, reason in ((plain, "not a dead-letter topic"), (lost, "does not name the topic")):
        page = await browser.act("/dead-letters/any/resend", id=result.offset_msg_id)
        assert reason in notice_of(page)


def test_a_copy_drops_what_belongs_to_one_delivery() -> None:
    """Delays, transactions and counters of the letter are not sent again."""
    kept = {"UNIQ_KEY": "id", "KEYS": "k", "color": "red"}
    gone = {"DELAY": "3", "RECONSUME_TIME": "16", "TRAN_MSG": "true", "CLUSTER": "c", "RETRY_TOPIC": "Source"}
    letter = MessageExt("%DLQ%g", 0, 0, 0, b"x", kept | gone, 7, 0, 0, ("::", 1), 0, ("::", 1), 16, 0, 0, 1)
    assert (copy_of(letter, None).topic, copy_of(letter, None).properties) == ("Source", kept)
    assert copy_of(letter, "g").properties == kept | {"RETRY_TOPIC": "Source", "ORIGIN_MESSAGE_ID": "id"}
    letter.topic = "Source"
    with pytest.raises(InvalidArgument, match="not a dead-letter topic"):
        copy_of(letter, "g")


async def test_a_job_reports_how_it_ended() -> None:
    """A failure of the cluster and a stop are results; both name how far the job came."""

    async def failing(job: Job) -> str:
        job.done = 2
        raise ConnectionLost("the connection is lost")

    async def endless(job: Job) -> str:
        await asyncio.Event().wait()
        return ""

    failed, stopped = Job("a", 3, failing), Job("b", 3, endless)
    await failed.wait()
    assert (failed.result, failed.has_failed) == ("the connection is lost (2 of 3 were done)", True)
    await asyncio.sleep(0)
    await stopped.stop()
    assert (stopped.result, stopped.is_running) == ("stopped after 0 of 3", False)


async def test_an_error_of_this_program_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The result names the log, which has the traceback."""

    async def broken(job: Job) -> str:
        raise ZeroDivisionError

    job = Job("a", 3, broken)
    await job.wait()
    assert (job.result, job.has_failed) == ("failed: the log of this process has the reason", True)
    assert "ZeroDivisionError" in caplog.text


async def test_jobs_are_bounded() -> None:
    """A name has one running job, a caller MAX_RUNNING; the oldest results are dropped, and `stop` ends all jobs."""
    jobs, release = Jobs(), asyncio.Event()

    async def waiting(job: Job) -> str:
        await release.wait()
        return "done"

    for number in range(MAX_RUNNING):
        jobs.start(f"job {number}", "A job", 1, waiting)
    with pytest.raises(InvalidArgument, match="jobs are running"):
        jobs.start("one more", "A job", 1, waiting)
    with pytest.raises(InvalidArgument, match="running already"):
        jobs.start("job 0", "A job", 1, waiting)
    release.set()
    for number in range(MAX_RUNNING):
        job = jobs.get(f"job {number}")
        assert job is not None
        await job.wait()
    for number in range(MAX_JOBS + 50):
        jobs.start(f"later {number}", "A job", 1, waiting)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    kept = [number for number in range(MAX_JOBS + 50) if jobs.get(f"later {number}") is not None]
    assert kept == list(range(50, MAX_JOBS + 50))
    release.clear()
    jobs.start("last", "A job", 1, waiting)
    await asyncio.sleep(0)
    await jobs.stop()
    last = jobs.get("last")
    assert last is not None
    assert (last.result, last.is_running) == ("stopped after 0 of 1", False)
