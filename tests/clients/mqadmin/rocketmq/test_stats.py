"""The command statsAll."""

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.mqadmin.rocketmq.stats import messages_of_day
from skylarkmq.protocol.bodies.stats import BrokerStatsData, StatsItem
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.rocketmq.conftest import GROUP, TOPIC, Live

HEAD = f"{'#Topic':64}  {'#Consumer Group':64} #Accumulation      #InTPS     #OutTPS   #InMsg24Hour  #OutMsg24Hour"


def test_topics_and_groups_are_rows(mqadmin: RunCommand, live: Live) -> None:
    """A topic without a group has NO_CONSUMER; topics of retries are left out."""
    mqadmin("sendMessage", "-t", "Lonely", "-p", "x")
    result = mqadmin("statsAll")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == HEAD
    assert f"{TOPIC:64}  {GROUP:64} {0:12} {0:11.2f} {0:11.2f} {0:14} {0:14}" in lines
    assert f"{'Lonely':64}  {'':64} {0:12} {0:11.2f} {'':>11} {0:14} {'NO_CONSUMER':>14}" in lines
    assert not any(line.startswith("%") for line in lines)
    assert len(mqadmin("statsAll", "-t", TOPIC).rows) == 1


def test_active_topics_have_messages_of_the_last_day(mqadmin: RunCommand, live: Live) -> None:
    """Before the first sample of the broker no topic has any."""
    assert mqadmin("statsAll", "-a").out == f"{HEAD}\n"


def test_an_unknown_topic_is_one_line(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With exit code 2."""
    result = mqadmin("statsAll", "-t", "Unknown")
    assert (result.code, result.out) == (2, "")
    assert result.err == "mqadmin: no topic Unknown. `mqadmin topicList` lists the topics.\n"


def test_messages_of_a_day_are_those_of_the_longest_window_with_samples() -> None:
    """A day, else an hour, else a minute."""

    def stats(minute: int, hour: int, day: int) -> BrokerStatsData:
        return BrokerStatsData(StatsItem(minute), StatsItem(hour), StatsItem(day))

    assert [messages_of_day(stats(*sums)) for sums in ((1, 2, 3), (1, 2, 0), (1, 0, 0), (0, 0, 0))] == [3, 2, 1, 0]
