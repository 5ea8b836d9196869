"""Offsets as JSON, in options and checkpoints."""

import json

import pytest

from skylarkmq.clients.spark.source.offsets import (
    FirstBatch,
    Offset,
    parse_ends,
    parse_first_batch,
    parse_queues,
    parse_starts,
    parse_times,
)
from skylarkmq.protocol.bodies.message_queue import MessageQueue

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
A10 = MessageQueue("T", "a", 10)


def test_equal_offsets_have_equal_texts() -> None:
    """Independent of the order of the queues: Spark compares texts."""
    one = json.dumps(Offset({A0: 1, B0: 2, A10: 3, A1: 4}, {B0: 0, A0: 0}).to_dict())
    other = json.dumps(Offset({A1: 4, A10: 3, B0: 2, A0: 1}, {A0: 0, B0: 0}).to_dict())
    assert one == other
    assert (
        one == '{"@from": {"T": {"a": {"0": 0}, "b": {"0": 0}}}, "T": {"a": {"0": 1, "1": 4, "10": 3}, "b": {"0": 2}}}'
    )


def test_an_offset_is_parsed_from_its_text() -> None:
    """Offsets with starts and without starts are equal to the original."""
    for offset in (Offset({A0: 1}, {A0: 0}), Offset({A0: 1}), Offset({})):
        assert Offset.of(json.loads(json.dumps(offset.to_dict()))) == offset


def test_earliest_and_latest_by_number() -> None:
    """A start may be either, an end only the latest."""
    assert parse_starts('{"T":{"a":{"0":-2,"1":-1},"b":{"0":7}}}') == {A0: -2, A1: -1, B0: 7}
    assert parse_ends('{"T":{"a":{"0":-1}}}') == {A0: -1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        '{"T":7}',
        '{"T":{"a":7}}',
        '{"T":{"a":{"x":7}}}',
        '{"T":{"a":{"0":"7"}}}',
        "[" * 100_000,
        *(f'{{"T":{{"a":{{"0":{number}}}}}}}' for number in (-3, 1 << 63, "9" * 5_000)),
        *(f'{{"T":{{"a":{{"{queue}":7}}}}}}' for queue in ("²", "9" * 5_000)),
    ],
)
def test_other_shapes_are_rejected(text: str) -> None:
    """The error contains the expected shape."""
    with pytest.raises(ValueError, match="JSON as"):
        parse_starts(text)


def test_times_by_topic_and_queue() -> None:
    """A queue's own time takes precedence over its topic's."""
    times = parse_times('{"T":5,"U":{"a":{"0":6}}}')
    assert (times.of(A0), times.of(MessageQueue("U", "a", 0)), times.of(MessageQueue("U", "a", 1))) == (5, 6, None)
    assert times.unknown_among([A0]) == ["U@a:0"]
    for text in ('{"T":-1}', '{"T":"5"}', "5"):
        with pytest.raises(ValueError, match="JSON as"):
            parse_times(text)


def test_queues_are_listed_sorted() -> None:
    """Duplicates are dropped; an empty list is an error."""
    assert parse_queues('{"T":{"b":[0],"a":[1,0,1]}}') == (A0, A1, B0)
    for text in ('{"T":{"a":[]}}', '{"T":{"a":[-1]}}', '{"T":{"a":0}}'):
        with pytest.raises(ValueError, match="JSON as"):
            parse_queues(text)


def test_the_first_batch_of_a_query_is_parsed_from_its_text() -> None:
    """With offsets as in a checkpoint; the end may be missing, and the start be empty."""
    start, end = Offset({A0: 1}, logs={"a": 5}).to_dict(), Offset({A0: 4}).to_dict()
    for first in (FirstBatch(start, end), FirstBatch(start), FirstBatch({})):
        assert parse_first_batch(first.text()) == first
    assert (FirstBatch(start, end).end_after(dict(start)), FirstBatch(start, end).end_after(end)) == (end, None)
    assert FirstBatch(start).end_after(start) is None
    for wrong in (
        "",
        "{}",
        '{"start": 1}',
        '{"start": {"T": 1}}',
        '{"start": {}, "end": {"T": {"a": {"0": -1}}}}',
        '{"start": {"@log": 5}}',
        '{"start": {"@log": {"a": "5"}}}',
        '{"start": {"T": ' + "[" * 100_000,
    ):
        with pytest.raises(ValueError, match="with offsets of a checkpoint"):
            parse_first_batch(wrong)
