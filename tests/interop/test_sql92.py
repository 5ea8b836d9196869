"""Official clients subscribe by a SQL92 expression: matching messages arrive once, and no others.

Half of the messages are sent before the consumer starts, so that its pulls find them. The others are sent while its
pulls are parked, and must wake them.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.matrix import each_client

TOPIC, QUEUES = "Selected", 4
EXPRESSION = "a BETWEEN 3 AND 7 AND (b = 'x' OR b IS NULL) AND TAGS IN ('TagA', 'étiquette') AND NOT (ort = 'Köln')"
TAGS = ("TagA", "TagB", "étiquette")
MESSAGES = 240

pytestmark = pytest.mark.interop


def properties(n: int) -> dict[str, str]:
    """Return the properties of a message; together the messages cover all cases of the expression."""
    one = {"n": str(n), "KEYS": f"k{n}", "a": str(n % 10), "TAGS": TAGS[n % 3], "ort": ("Köln", "北京")[n % 2]}
    return one if n % 4 == 0 else one | {"b": ("x", "y", "x")[n % 4 - 1]}


def is_selected(n: int) -> bool:
    """Return the result of the expression, computed in Python."""
    return 3 <= n % 10 <= 7 and n % 4 != 2 and n % 3 != 1 and n % 2 != 0


def send(broker: BrokerUnderTest, numbers: range) -> set[str]:
    """Send messages and return the names of the matching ones."""
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
def test_a_consumer_receives_the_messages_that_match(client: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    """Matching messages sent before and after the consumer's start arrive once, others do not."""
    CLIENTS[client].command(tmp_path)  # build the driver, or skip, before any deadline starts
    begin = 1_000 * list(CLIENTS).index(client)
    wanted = send(broker, range(begin, begin + MESSAGES))
    drivers = DriverGroup(tmp_path, broker.log)
    try:
        group = f"sql-{client.replace('.', '-')}"
        selected = f"{TOPIC} where {EXPRESSION}"
        drivers.start("member", CLIENTS[client].command, "consume", broker.namesrv, selected, group)
        drivers.wait_for_messages(wanted, PROCESS_LIMIT_S)
        wanted |= send(broker, range(begin + MESSAGES, begin + 2 * MESSAGES))
        drivers.wait_for_messages(wanted)
        received = Counter(seen.message.n for seen in drivers.deliveries if int(seen.message.n) >= begin)
        assert received == dict.fromkeys(wanted, 1)
        assert all(is_selected(int(seen.message.n)) for seen in drivers.deliveries)
    finally:
        drivers.stop()
