"""Marks of batches in snapshots and properties."""

from skylarkmq.clients.spark.tables.marks import Mark, kept_marks, last_batches


def test_the_last_batch_of_each_query_is_found_in_snapshots_and_properties() -> None:
    """The larger one counts; snapshots of other writers are ignored."""
    summaries = [Mark("a", 3).summary(), Mark("a", 4).summary(), {"operation": "append"}, Mark("b", 0).summary()]
    properties = {**Mark("a", 3).properties(), **Mark("c", 7).properties(), "write.format.default": "parquet"}
    assert last_batches(summaries, properties) == {"a": 4, "b": 0, "c": 7}


def test_a_batch_is_found_after_its_snapshot_expired() -> None:
    """By the property alone."""
    assert last_batches([], Mark("a", 12).properties()) == {"a": 12}


def test_only_marks_that_no_property_has_are_kept() -> None:
    """As properties, before snapshots expire."""
    properties = Mark("a", 4).properties() | Mark("b", 1).properties()
    summaries = [Mark("a", 4).summary(), Mark("b", 2).summary()]
    assert kept_marks(summaries, properties) == Mark("b", 2).properties()
