"""One property out of a property string."""

from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.filters.sql92.properties import enclosed, entries_of, finder, getter
from skylarkmq.protocol.message import decode_properties

TEXTS = st.text(st.sampled_from("ab$\x01\x02ü"), max_size=30)


@given(TEXTS, st.sampled_from(["a", "b", "ab", "$", "zz"]))
def test_same_as_the_map(text: str, name: str) -> None:
    """Both ways find what `decode_properties` finds: the last value that is not empty, closed or not."""
    expected = decode_properties(text).get(name)
    data = text.encode()
    found = finder(name)(enclosed(data)), getter(name)(entries_of(memoryview(data)))
    assert found == ((expected.encode(),) * 2 if expected is not None else (None, None))


def test_empty_values_without_number() -> None:
    """Ten thousand entries without a value hide one that has one, and cost no time to speak of."""
    data = b"a\x01x\x02" + b"a\x01\x02" * 10_000
    assert finder("a")(enclosed(data)) == b"x"
    assert finder("b")(enclosed(data)) is None


def test_binary_neighbours() -> None:
    """What is no UTF-8 disturbs nobody."""
    assert finder("a")(enclosed(b"\xff\x01\xfe\x02a\x01\x80")) == b"\x80"
