"""One property out of a property string."""

from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.filters.sql92.properties import enclosed, entries_of, finder, getter
from skylarkmq.protocol.message import decode_properties

TEXTS = st.text(st.sampled_from("ab$\x01\x02ü"), max_size=30)


@given(TEXTS, st.sampled_from(["a", "b", "ab", "$", "zz"]))
def test_lookup_agrees_with_decode_properties(text: str, name: str) -> None:
    """Both ways find the value in `decode_properties`: the last one that is not empty, closed or not."""
    expected = decode_properties(text).get(name)
    data = text.encode()
    found = finder(name)(enclosed(data)), getter(name)(entries_of(memoryview(data)))
    assert found == ((expected.encode(),) * 2 if expected is not None else (None, None))


def test_many_empty_values_are_skipped() -> None:
    """Ten thousand later entries without a value do not hide a value, and cost little time."""
    data = b"a\x01x\x02" + b"a\x01\x02" * 10_000
    assert finder("a")(enclosed(data)) == b"x"
    assert finder("b")(enclosed(data)) is None


def test_invalid_utf8_in_other_entries_has_no_effect() -> None:
    """Invalid UTF-8 in other entries has no effect."""
    assert finder("a")(enclosed(b"\xff\x01\xfe\x02a\x01\x80")) == b"\x80"
