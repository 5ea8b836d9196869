"""mqadmin doctor reads a broker of each version without a finding that is none.

CI runs against Skylark; RocketMQ's brokers:

    pytest -m interop tests/interop/test_doctor.py --broker-under-test=apache-4.9.7
    pytest -m interop tests/interop/test_doctor.py --broker-under-test=apache-5.3.3
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from skylarkmq import ConsumeFrom, Message
from skylarkmq.blocking import Producer, PushConsumer
from skylarkmq.clients.mqadmin.app.cli import run
from skylarkmq.clients.mqadmin.doctor.findings import Report
from tests.interop.brokers import BrokerUnderTest, running_broker, wait_until, wait_until_committed

TOPIC, GROUP, BROKER = "Orders", "billing", "broker-a"
LEVEL_OF_2_HOURS: Final = 18
NOT_REPORTED: Final = {"skylark": set[str](), "apache-5.3.3": set[str](), "apache-4.9.7": {"timers"}}
"""Checks of a state that the broker does not report."""

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    """Start a broker with a topic, a message that waits for its delivery, and nothing else."""
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), {"brokerName": BROKER}) as broker:
        broker.create_topic(TOPIC, 2)
        with Producer("shop", namesrv=broker.namesrv) as producer:
            producer.send(Message(TOPIC, b"later"), delay_level=LEVEL_OF_2_HOURS)
        # RocketMQ 4.9 fails until it has a sample of its rates
        wait_until(lambda: run(["brokerStatus", "-n", broker.namesrv, "-b", broker.broker_address]) == 0, "its state")
        yield broker


def report(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str], *options: str) -> Report:
    """Return the report without the findings about the disk of the test's machine, which may be full."""
    capsys.readouterr()
    run(["doctor", "--json", "--sample", "1", "-n", broker.namesrv, *options])
    out, err = capsys.readouterr()
    assert err == ""
    found = msgspec.json.decode(out, type=Report)
    return msgspec.structs.replace(found, findings=[each for each in found.findings if each.check != "disks"])


def test_a_healthy_group_has_no_finding(
    broker: BrokerUnderTest, broker_kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a member that consumes. Only what this version does not report is not examined."""
    with (
        PushConsumer(
            GROUP,
            namesrv=broker.namesrv,
            handler=lambda message: None,
            consume_from=ConsumeFrom.FIRST,
            topics=TOPIC,
        ) as member,
        Producer("shop", namesrv=broker.namesrv) as producer,
    ):
        producer.send(Message(TOPIC, b"now"))
        wait_until_committed(member, 1)
        healthy = report(broker, capsys, "-g", GROUP, "-t", TOPIC)
    assert healthy.findings == []
    assert {each.check for each in healthy.not_examined} == NOT_REPORTED[broker_kind] | {"access"}


def test_what_is_wrong_is_found(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown topic, and a group that is not online."""
    wrong = report(broker, capsys, "-g", "nobody", "-t", "Unknown")
    assert [(each.check, each.what) for each in wrong.findings] == [
        ("topics", "no name server has a route of the topic"),
        ("group online", "the group does not exist"),
    ]
