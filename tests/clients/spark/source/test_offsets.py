"""Offsets as JSON, of users and of checkpoints."""

import json

import pytest

from skylarkmq.clients.spark.source.offsets import Offset, parse_ends, parse_queues, parse_starts, parse_times
from skylarkmq.protocol.bodies.message_queue import MessageQueue

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
A10 = MessageQueue("T", "a", 10)


def test_an_offset_has_one_text() -> None:
    """Whatever the order in which its queues came, since Spark compares texts."""
    one = json.dumps(Offset({A0: 1, B0: 2, A10: 3, A1: 4}, {B0: 0, A0: 0}).to_dict())
    other = json.dumps(Offset({A1: 4, A10: 3, B0: 2, A0: 1}, {A0: 0, B0: 0}).to_dict())
    assert one == other
    assert (
        one == '{"@from": {"T": {"a": {"0": 0}, "b": {"0": 0}}}, "T": {"a": {"0": 1, "1": 4, "10": 3}, "b": {"0": 2}}}'
    )


def test_an_offset_comes_back_from_its_text() -> None:
    """With its starts, and without."""
    for offset in (Offset({A0: 1}, {A0: 0}), Offset({A0: 1}), Offset({})):
        assert Offset.of(json.loads(json.dumps(offset.to_dict()))) == offset


def test_earliest_and_latest_by_number() -> None:
    """A start may be both, an end only the latest."""
    assert parse_starts('{"T":{"a":{"0":-2,"1":-1},"b":{"0":7}}}') == {A0: -2, A1: -1, B0: 7}
    assert parse_ends('{"T":{"a":{"0":-1}}}') == {A0: -1}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", '{"T":7}', '{"T":{"a":7}}', '{"T":{"a":{"x":7}}}', '{"T":{"a":{"0":"7"}}}', '{"T":{"a":{"0":-3}}}'],
)
def test_other_shapes_are_refused(text: str) -> None:
    """With the one that was wanted."""
    with pytest.raises(ValueError, match="JSON as"):
        parse_starts(text)


def test_times_by_topic_and_queue() -> None:
    """A queue's own time counts before its topic's."""
    times = parse_times('{"T":5,"U":{"a":{"0":6}}}')
    assert (times.of(A0), times.of(MessageQueue("U", "a", 0)), times.of(MessageQueue("U", "a", 1))) == (5, 6, None)
    assert times.unknown_among([A0]) == ["U@a:0"]
    for text in ('{"T":-1}', '{"T":"5"}', "5"):
        with pytest.raises(ValueError, match="JSON as"):
            parse_times(text)


def test_queues_by_list() -> None:
    """Sorted, each once; there has to be one."""
    assert parse_queues('{"T":{"b":[0],"a":[1,0,1]}}') == (A0, A1, B0)
    for text in ('{"T":{"a":[]}}', '{"T":{"a":[-1]}}', '{"T":{"a":0}}'):
        with pytest.raises(ValueError, match="JSON as"):
            parse_queues(text)
