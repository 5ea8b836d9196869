"""The offsets that a table keeps: found by their checkpoint, and damaged ones are refused with one line."""

import pytest

from skylarkmq.clients.spark.tables.batch_offsets import (
    BatchOffsets,
    DamagedOffsets,
    offsets_from,
    offsets_in,
    property_of,
)
from skylarkmq.clients.spark.tables.marks import Mark

CHECKPOINT = "file:/a"
NINES = "9" * 5_000
DEEP = "[" * 100_000 + "]" * 100_000
WRONG_OFFSETS = [
    '{"T": 5}',
    '{"T": {"a": {"x": 1}}}',
    '{"T": {"a": {"0": -5}}}',
    '{"T": {"a": {"0": 1.5}}}',
    '{"T": {"a": {"0": 9223372036854775808}}}',
    f'{{"T": {{"a": {{"{NINES}": 1}}}}}}',
    '{"@from": 5}',
    '{"@log": 5}',
    '{"@log": {"a": "5"}}',
    '{"@log": {"a": -5}}',
]
UNREADABLE = [
    "", "5", "[]", "\0", '{"checkpoint": "file:/a"}', "\ud800", '"' + "x" * 1_000_000,
    f'{{"checkpoint": "file:/a", "mark": {{"query": "q", "batch": {NINES}}}, "start": {{}}, "end": {{}}}}', DEEP,
    *(
        f'{{"checkpoint": "file:/a", "mark": {{"query": "q", "batch": 1}}, "start": {{"T": {start}}}, "end": {{}}}}'
        for start in (NINES, DEEP)
    ),
]  # fmt: skip


def stored(offset: str) -> str:
    return f'{{"checkpoint": "file:/a", "mark": {{"query": "q", "batch": 1}}, "start": {{}}, "end": {offset}}}'


def test_pipelines_into_one_table_have_their_own_offsets() -> None:
    """They differ by the path of their checkpoints."""
    one = BatchOffsets("file:/a", Mark("q", 3), {}, {"T": {}})
    other = BatchOffsets("file:/b", Mark("r", 1), {"T": {}}, {"U": {}})
    properties = one.properties() | other.properties()
    assert (offsets_in(properties, "file:/a"), offsets_in(properties, "file:/b")) == (one, other)
    assert offsets_in(properties, "file:/c") is None
    assert (offsets_from(one.text(), "file:/a"), offsets_from(one.text(), "file:/b")) == (one, None)
    for text in (None, "", "by hand", "[]", '{"checkpoint": "file:/a"}'):
        assert offsets_from(text, "file:/a") is None


@pytest.mark.parametrize("text", UNREADABLE + [stored(offset) for offset in WRONG_OFFSETS])
def test_a_damaged_property_is_refused(text: str) -> None:
    """Else the query would begin at startingOffsets and write its messages again."""
    with pytest.raises(DamagedOffsets, match="Restore the checkpoint") as refused:
        offsets_in({property_of(CHECKPOINT): text}, CHECKPOINT)
    assert property_of(CHECKPOINT) in str(refused.value)
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", UNREADABLE)
def test_commits_of_other_writers_are_not_offsets(text: str) -> None:
    """Every writer of the table may put any text into its commits."""
    assert offsets_from(text, CHECKPOINT) is None


@pytest.mark.parametrize("offset", WRONG_OFFSETS)
def test_a_damaged_commit_of_the_checkpoint_is_refused(offset: str) -> None:
    """The last one counts: with an older one, messages would be written twice."""
    with pytest.raises(DamagedOffsets, match="the userMetadata of a commit is damaged"):
        offsets_from(stored(offset), CHECKPOINT)
    assert offsets_from(stored(offset), "file:/b") is None
