"""Tests of the group's record: JSON that another version can read, and its sets."""

import pytest

from skylarkmq.broker.ha.core.record import GroupRecord, Member, decode, encode
from tests.broker.ha.core.driven import record


def test_a_record_is_the_same_after_encoding_and_decoding() -> None:
    """The JSON has RocketMQ's spelling of names, in a fixed order."""
    value = record(nonce="run-1")
    assert decode(encode(value)) == value
    assert encode(value).startswith(
        b'{"acks":"all","epoch":1,"format":1,"inSync":["a","b","c"],"leader":"n2","members":'
    )


def test_a_record_of_a_newer_version_is_read() -> None:
    """Fields that this version does not know are ignored, and those with a default may be missing."""
    found = decode(b'{"epoch":3,"leader":"","inSync":[],"members":{"n1":{"storeId":"a"}},"min":1,"new":true}')
    assert found == GroupRecord(epoch=3, leader="", in_sync=(), members={"n1": Member("a")}, min=1)


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"[]", b"{}", b'{"epoch":"3","leader":"","inSync":[],"members":{},"min":1}', b"null"]
)
def test_a_value_of_another_shape_is_refused(value: bytes) -> None:
    """Any other bytes give ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        decode(value)


def test_a_change_of_the_set_adds_and_replaces_members() -> None:
    """Ids are sorted; the members that the change does not name stay."""
    changed = record().with_set(frozenset("da"), {"n2": Member("d")})
    assert changed.in_sync == ("a", "d")
    assert changed.members == {"n1": Member("a"), "n2": Member("d"), "n3": Member("c")}


@pytest.mark.parametrize(
    ("in_sync", "store_id", "others"),
    [("abc", "a", ["n2", "n3"]), ("ab", "b", ["n1"]), ("a", "a", []), ("ax", "a", [])],
)
def test_the_others_of_the_set(in_sync: str, store_id: str, others: list[str]) -> None:
    """Members whose store was replaced (x: a store that no member has any more) are not among them."""
    assert record(in_sync=in_sync).others_in_sync(store_id) == others
