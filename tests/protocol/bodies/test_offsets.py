"""Committed offsets, as all versions of RocketMQ write them."""

import pytest

from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.bodies.topic import DataVersion

TABLE = {"T@g": {0: 5, 1: 6}, "%RETRY%g@g": {0: 0}}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"offsetTable":{"T@g":{0:5,1:6},"%RETRY%g@g":{0:0}}}', ConsumerOffsets(offset_table=TABLE)),
        (b'{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:6\n\t\t},\n\t\t"%RETRY%g@g":{ 0 :0}\n}\n}',
         ConsumerOffsets(offset_table=TABLE)),
        (b'{"offsetTable":{"T@g":{"0":5,"1":6},"%RETRY%g@g":{"0":0}}}', ConsumerOffsets(offset_table=TABLE)),
        (b'{"offsetTable":{"T@g":{0:5,"1":"6"},"%RETRY%g@g":{0:0},"x":null}}', ConsumerOffsets(offset_table=TABLE)),
        (b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"groupTopicMap":{"g":["T"]},"offsetTable":{}}',
         ConsumerOffsets(DataVersion(0, 2, 1), {"g": ["T"]})),
    ],
)  # fmt: skip
def test_offsets_in_all_forms_are_read(data: bytes, expected: ConsumerOffsets) -> None:
    """Bare, quoted and mixed queue ids, with and without the members of 5.x, indented or not."""
    assert ConsumerOffsets.decode(data) == expected
    assert ConsumerOffsets.decode(expected.encode()) == expected


def test_offsets_are_written_with_bare_queue_ids() -> None:
    """Java reads and writes queue ids without quotes; absent members stay absent."""
    assert ConsumerOffsets(offset_table={"T@g": {0: 5, 1: 6}}).encode() == b'{"offsetTable":{"T@g":{0:5,1:6}}}'


def test_a_large_table_does_not_need_the_tolerant_reader() -> None:
    """Tables beyond the tolerant reader's limit decode, because only their keys are not standard JSON."""
    table = {f"Topic{n}@group": dict.fromkeys(range(8), n) for n in range(20_000)}
    assert ConsumerOffsets.decode(ConsumerOffsets(offset_table=table).encode()).offset_table == table


def test_a_body_may_be_a_memoryview() -> None:
    """Bare numeric keys are also found in a memoryview."""
    body = ConsumerOffsets.decode(memoryview(b'{"offsetTable":{"T@g":{0:5,1:6}}}'))
    assert body.offset_table == {"T@g": {0: 5, 1: 6}}
