"""Settings with their origins, and connections."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, free_ports
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.pages.settings import HIDDEN, _shown
from skylarkmq.clients.sdk import Client, Message, Producer, PushConsumer, ReceivedMessage
from skylarkmq.clients.sdk.admin.admin import Admin
from tests.clients.console.conftest import Browser, notice_of, opened, text_of


class Row(NamedTuple):
    key: str
    value: str
    origin: str


async def test_the_settings_of_a_broker_are_paged_and_searched(browser: Browser) -> None:
    """Another broker gives keys and values, without origins."""
    page = await browser.get("/settings")
    assert "Settings of broker-a" in text_of(page)
    assert page.text.count("<td>–</td>") == 50
    assert "brokerClusterName DefaultCluster –" in text_of(await browser.get("/settings?q=brokerclustername"))


async def test_the_own_broker_gives_origins(broker: InProcessBroker) -> None:
    """The console of a broker has the origin of each value."""

    def rows() -> Sequence[Row]:
        return [Row("listenPort", "10911", "broker.conf:3"), Row("a<b>", "<i>", "default")]

    options = ConsoleOptions(Target(broker.namesrv), own_broker="broker-a", own_settings=rows)
    async with opened(options) as browser:
        page = await browser.get("/settings")
        assert "listenPort 10911 broker.conf:3" in text_of(page)
        assert "<i>" not in page.text


async def test_an_unknown_broker_is_one_line(browser: Browser) -> None:
    """The page has the reason."""
    page = await browser.get("/settings?broker=none")
    assert (page.status_code, "'none' is registered" in notice_of(page)) == (400, True)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("initAuthenticationUser", '{"password":"x"}', HIDDEN),
        ("secretKey", "x", HIDDEN),
        ("strictSecretFiles", "true", "true"),
        ("secretKey", "", ""),
        ("listenPort", "10911", "10911"),
    ],
)
def test_values_of_secret_keys_are_hidden(key: str, value: str, shown: str) -> None:
    """A name that suggests a secret is enough."""
    assert _shown(key, value) == shown


async def test_connected_clients_are_listed(browser: Browser, broker: InProcessBroker) -> None:
    """Producers come with their brokers, members with their groups."""

    async def ignore(message: ReceivedMessage) -> None: ...

    async with Client(broker.namesrv) as client, Client(broker.namesrv) as members, Admin(client=client) as admin:
        await admin.create_topic("Linked", queues=1)
        async with (
            Producer("makers", client=client) as producer,
            PushConsumer("takers", handler=ignore, client=members, topics="Linked"),
        ):
            await producer.send(Message("Linked", b"x"))
            await client.beat()  # the connection is older than the producer
            text = text_of(await browser.get("/connections"))
            assert f"makers {client.client_id} 127.0.0.1:" in text
            assert f"takers {members.client_id} 127.0.0.1:" in text
            assert "makers" in (await browser.live("/connections")).text
    assert "makers" not in text_of(await browser.get("/connections"))


@pytest.mark.parametrize(
    "path",
    ["/", "/topics", "/topics/T", "/topic-form", "/groups", "/groups/g", "/messages?topic=T&by=time", "/messages/00",
     "/dead-letters", "/dead-letters/g", "/delayed", "/transactions", "/connections", "/settings"],
)  # fmt: skip
async def test_every_page_survives_an_unreachable_cluster(path: str) -> None:
    """Status 503 (400 for an invalid id) with one line, never a traceback."""
    (port,) = free_ports(1)
    async with opened(ConsoleOptions(Target(f"127.0.0.1:{port}"))) as browser:
        page = await browser.get(path)
        assert page.status_code == (400 if path == "/messages/00" else 503)
        assert notice_of(page)
        assert "Traceback" not in page.text
