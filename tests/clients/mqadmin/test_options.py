"""Values of options: times and attributes; and JSON in the layout of fastjson."""

import time

import pytest

from skylarkmq.clients.mqadmin.attributes import attribute_changes
from skylarkmq.clients.mqadmin.failures import CommandFailed
from skylarkmq.clients.mqadmin.fastjson import indented
from skylarkmq.clients.mqadmin.time_arguments import time_argument
from skylarkmq.protocol.bodies.route import BrokerData, TopicRouteData


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("-1", -1),
        (" 1700000000123 ", 1_700_000_000_123),
        ("2023-11-14#22:13:20:123", 1_700_000_000_123),
        ("2023-11-14#22:13:20:5", 1_700_000_000_005),
    ],
)
def test_times_are_read(monkeypatch: pytest.MonkeyPatch, text: str, ms: int) -> None:
    """Milliseconds, or a local date."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert time_argument(text) == ms
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["", "now", "2023-11-14 22:13:20", "2023-13-01#00:00:00:000", "1e3", "٣"])
def test_other_times_are_refused(text: str) -> None:
    """With the forms that are allowed."""
    with pytest.raises(CommandFailed, match="milliseconds since 1970"):
        time_argument(text)


def test_attributes_are_read() -> None:
    """In the order in which RocketMQ's tool prints them."""
    assert list(attribute_changes("+b=1,-a,+c=x").items()) == [("-a", ""), ("+b", "1"), ("+c", "x")]


@pytest.mark.parametrize("text", ["a=b", "+a=", "a", "", "+a=1,+a=2"])
def test_other_attributes_are_refused(text: str) -> None:
    """Without a sign, without a value, or twice."""
    with pytest.raises(CommandFailed):
        attribute_changes(text)


def test_json_is_indented_as_by_fastjson() -> None:
    """Entries of maps with numbers as keys are not broken; absent members are left out."""
    route = TopicRouteData("b:1", [], [BrokerData("c", "b\\\n", {0: "a:1", 1: "a:2"})], {"a:1": ["f"]})
    assert indented(route) == (
        '{\n\t"brokerDatas":[\n\t\t{\n\t\t\t"brokerAddrs":{0:"a:1",1:"a:2"\n\t\t\t},\n\t\t\t"brokerName":"b\\\\\\n",\n'
        '\t\t\t"cluster":"c",\n\t\t\t"enableActingMaster":false\n\t\t}\n\t],\n'
        '\t"filterServerTable":{\n\t\t"a:1":[\n\t\t\t"f"\n\t\t]\n\t},\n\t"orderTopicConf":"b:1",\n\t"queueDatas":[]\n}'
    )
