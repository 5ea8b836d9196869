"""Single fields of a record: the same values as from a parse, and never an exception."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import Record, parse
from skylarkmq.protocol.record_fields import properties_of
from tests.protocol.test_record import EXAMPLE, PROPERTIES, example


@pytest.mark.parametrize("topic", ["T", "", "t" * 300])
@pytest.mark.parametrize("host", ["1.2.3.4", "::1"])
@pytest.mark.parametrize("properties", [b"", PROPERTIES, b"x" * 32_767])
def test_properties_are_found_without_parsing(topic: str, host: str, properties: bytes) -> None:
    """The properties of a record are found from its lengths, in every layout."""
    data = example(topic=topic, properties=properties, born_host=encode_host(host, 9), store_host=encode_host(host, 9))
    found = properties_of(memoryview(data))
    assert found is not None
    assert bytes(found) == properties


@given(st.lists(st.tuples(st.integers(0, 177), st.integers(0, 255)), max_size=3), st.booleans(), st.integers(0, 3))
def test_properties_of_damaged_records_agree_with_parse(changes: list[tuple[int, int]], v6: bool, cut: int) -> None:
    """A damaged record that still parses gives the same properties as `parse`; other bytes never raise."""
    data = bytearray(example(born_host=encode_host("::1" if v6 else "1.2.3.4", 9)))
    for at, value in changes:
        data[at % len(data)] = value
    view = memoryview(data)[: len(data) - cut]
    found, whole = properties_of(view), parse(view, check_body=False)
    if isinstance(whole, Record) and whole.size == len(view):
        assert found is not None
        assert bytes(found) == whole.properties


@given(st.binary(max_size=200))
def test_properties_of_garbage_never_raise(data: bytes) -> None:
    """No bytes raise an exception."""
    properties_of(memoryview(data))
    properties_of(memoryview(EXAMPLE[:36] + data))
