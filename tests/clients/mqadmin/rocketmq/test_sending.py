"""Commands that send messages."""

import re

from skylarkmq.broker.app.in_process import InProcessBroker
from tests.clients.mqadmin.conftest import RunCommand


def test_send_message_prints_where_the_message_is(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """To any queue, or to the one that is given."""
    result = mqadmin("sendMessage", "-t", "Sent", "-p", "hello", "-k", "k1 k2", "-c", "tag")
    assert (result.code, result.err) == (0, "")
    head, row = result.out.splitlines()
    assert head == "#Broker Name                      #QID  #Send Result            #MsgId"
    assert re.fullmatch(r"broker-a {26}[0-3]     SEND_OK {17}[0-9A-F]{32}", row)
    chosen = mqadmin("sendMessage", "-t", "Sent", "-p", "hello", "-b", "broker-a", "-i", "3", "-m", "true")
    assert chosen.rows[0][:3] == ["broker-a", "3", "SEND_OK"]


def test_a_queue_needs_a_broker(mqadmin: RunCommand) -> None:
    """Nothing is sent without it."""
    result = mqadmin("sendMessage", "-t", "Sent", "-p", "hello", "-i", "3")
    assert (result.code, result.out) == (1, "")
    assert result.err == "mqadmin: Broker name must be set if the queue is chosen!\n"
    unknown = mqadmin("sendMessage", "-t", "Sent", "-p", "hello", "-b", "missing", "-i", "3")
    assert (unknown.code, unknown.out) == (2, "")
    assert "missing" in unknown.err


def test_check_send_times_sends_to_each_queue_in_turn(mqadmin: RunCommand) -> None:
    """The average leaves out the first message, which includes connecting."""
    mqadmin("sendMessage", "-t", "Timed", "-p", "creates the topic")
    result = mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "5", "-s", "10")
    *rows, average = result.out.splitlines()
    assert rows[0] == "#Broker Name                      #QID  #Send Result            #RT"
    cells = [row.split() for row in rows[1:]]
    assert [row[:3] for row in cells] == [["broker-a", str(queue), "true"] for queue in (0, 1, 2, 3, 0)]
    assert average == f"Avg RT: {sum(int(row[3]) for row in cells[1:]) / 4:.2f}"
    assert mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "1").out.endswith("Avg RT: NaN\n")
    assert mqadmin("checkMsgSendRT", "-t", "Unknown").code == 2
