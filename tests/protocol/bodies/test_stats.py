"""Bodies of statistics: maps with queues as keys, as Java's tools read them."""

import pytest

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetWrapper,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)

QUEUE = MessageQueue("T", "b", 1)
KEY = b'{"brokerName":"b","queueId":1,"topic":"T"}'


def test_a_map_by_queue_has_objects_as_its_keys() -> None:
    """Members in alphabetical order, rates with a fraction; the body round-trips."""
    table = TopicStatsTable({QUEUE: TopicOffset(1, 2, 3)})
    text = b'{"offsetTable":{%b:{"lastUpdateTimestamp":3,"maxOffset":2,"minOffset":1}},"topicPutTps":0.0}' % KEY
    assert table.encode() == text
    assert TopicStatsTable.decode(text) == table
    stats = ConsumeStats({QUEUE: OffsetWrapper(9, 5, 7, 3)}, 1.5)
    row = b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":3,"pullOffset":7}'
    assert stats.encode() == b'{"consumeTps":1.5,"offsetTable":{%b:%b}}' % (KEY, row)
    assert ConsumeStats.decode(stats.encode()) == stats
    assert ConsumeStats.decode(b"{}").encode() == b'{"consumeTps":0.0,"offsetTable":{}}'


def test_a_large_map_by_queue_does_not_need_the_tolerant_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of that reader is 256 KiB, about 1,500 queues of one group."""
    stats = ConsumeStats({MessageQueue("T", "b", n): OffsetWrapper(n, n) for n in range(3000)})
    table = ConsumeStatsList([{"g": [stats]}], "1.2.3.4:5")

    def forbidden(*_arguments: object, **_options: object) -> None:
        raise AssertionError("the tolerant reader met a map by queue")

    monkeypatch.setattr(javajson, "loads", forbidden)
    assert ConsumeStats.decode(memoryview(stats.encode())) == stats
    assert ConsumeStatsList.decode(table.encode()) == table


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{{"queueId":1,"topic":"T","brokerName":"b"}:{"maxOffset":"2"}}}',  # numbers as text
        b'{"offsetTable":{{"queueId":"1","topic":"T","brokerName":"b"}:{"maxOffset":2,"minOffset":null}}}',
        b'{"offsetTable":{{"brokerName":"b","extra":"{},{:","queueId":1,"topic":"T"}:{"maxOffset":2}},"x":"{a}:,{b}:"}',
        b'{"offsetTable":{{"brokerName":"\\u0062","queueId":1,"topic":"T"}:{"maxOffset":2}}}',
        b'{"a":{"maxOffset":2},"offsetTable":{%b:{"maxOffset":2}}}' % KEY,
        b"{'offsetTable':{{brokerName:'b',queueId:1,topic:'T'}:{maxOffset:2}}}",
    ],
)
def test_other_forms_of_a_map_by_queue_are_read(text: bytes) -> None:
    """In another order, with text that looks like a key, with escapes, and as fastjson accepts it."""
    assert TopicStatsTable.decode(text).offset_table == {QUEUE: TopicOffset(max_offset=2)}


def test_references_in_a_map_by_queue_are_resolved() -> None:
    """fastjson writes one for an object that it has written before."""
    text = b'{"offsetTable":{%b:{"$ref":"$.row"}},"row":{"maxOffset":2}}' % KEY
    assert TopicStatsTable.decode(text).offset_table == {QUEUE: TopicOffset(max_offset=2)}


def test_the_list_of_all_groups_has_their_totals() -> None:
    """The number of messages that are not consumed, and how many of these are pulled."""
    stats = ConsumeStats({QUEUE: OffsetWrapper(9, 5, 7, 3)})
    body = ConsumeStatsList([{"g": [stats, stats]}, {"h": []}], "1.2.3.4:5").encode()
    assert body.startswith(b'{"brokerAddr":"1.2.3.4:5","consumeStatsList":[{"g":[{"consumeTps":0.0,')
    assert body.endswith(b'{"h":[]}],"totalDiff":8,"totalInflightDiff":4}')


def test_time_spans_name_their_queue() -> None:
    """The queue is an ordinary member."""
    body = ConsumeTimeSpans([QueueTimeSpan(QUEUE, 1, 2, 3, 4)])
    assert b'"messageQueue":' + KEY in body.encode()
    assert ConsumeTimeSpans.decode(body.encode()) == body
