"""The shapes of plots."""

from skylarkmq.clients.terminal.svg import label, round_up


def test_a_scale_ends_at_a_round_number() -> None:
    """The end of the scale has one significant digit."""
    assert [round_up(value) for value in (0.0, 1.0, 7.1, 81_234.0)] == [1.0, 1.0, 8.0, 90_000.0]


def test_texts_are_escaped() -> None:
    """Names of topics and groups come from users."""
    assert ">a&lt;b&gt; &amp; c</text>" in label(1, 2, "a<b> & c", "start")
