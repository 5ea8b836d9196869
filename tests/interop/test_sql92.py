"""Official clients subscribe by a SQL92 expression: what matches comes once, and nothing else does.

Half of the messages are there before the consumer is, so that its pulls look for them; the others come while its pulls
are parked, and have to wake them.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import Stage
from tests.interop.matrix import each_client

TOPIC, QUEUES = "Selected", 4
EXPRESSION = "a BETWEEN 3 AND 7 AND (b = 'x' OR b IS NULL) AND TAGS IN ('TagA', 'étiquette') AND NOT (ort = 'Köln')"
TAGS = ("TagA", "TagB", "étiquette")
MESSAGES = 240
SUBSCRIBED_DEADLINE_S = 45.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def properties(n: int) -> dict[str, str]:
    """Every combination of what the expression asks for."""
    one = {"n": str(n), "KEYS": f"k{n}", "a": str(n % 10), "TAGS": TAGS[n % 3], "ort": ("Köln", "北京")[n % 2]}
    return one if n % 4 == 0 else one | {"b": ("x", "y", "x")[n % 4 - 1]}


def is_selected(n: int) -> bool:
    """The expression, in Python."""
    return 3 <= n % 10 <= 7 and n % 4 != 2 and n % 3 != 1 and n % 2 != 0


def send(broker: BrokerUnderTest, numbers: range) -> set[str]:
    """Send messages; the names of those that are wanted."""
    for n in numbers:
        broker.send(TOPIC, n // 7 % QUEUES, properties(n), b"body")
    return {str(n) for n in numbers if is_selected(n)}


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    home = tmp_path_factory.mktemp("broker")
    with running_broker(broker_kind, home, {"enablePropertyFilter": "true"}) as running:
        running.create_topic(TOPIC, QUEUES)
        yield running


@pytest.mark.parametrize("client", each_client("sql92"))
def test_a_consumer_gets_what_it_selects(client: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    """Messages of before and of after its start arrive if they match, each once, and no others."""
    CLIENTS[client].command(tmp_path)  # built, or skipped, before the clock runs
    begin = 1_000 * list(CLIENTS).index(client)
    wanted = send(broker, range(begin, begin + MESSAGES))
    stage = Stage(tmp_path, broker.log)
    try:
        group = f"sql-{client.replace('.', '-')}"
        selected = f"{TOPIC} where {EXPRESSION}"
        stage.start("member", CLIENTS[client].command, "consume", broker.namesrv, selected, group)
        stage.wait_for_messages(wanted, SUBSCRIBED_DEADLINE_S)
        wanted |= send(broker, range(begin + MESSAGES, begin + 2 * MESSAGES))
        stage.wait_for_messages(wanted)
        received = Counter(seen.message.n for seen in stage.deliveries if int(seen.message.n) >= begin)
        assert received == dict.fromkeys(wanted, 1)
        assert all(is_selected(int(seen.message.n)) for seen in stage.deliveries)
    finally:
        stage.stop()
