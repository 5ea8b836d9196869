"""The counts behind a progress bar."""

from skylarkmq.clients.spark.progress_bar import TaskCounts


def test_stages_that_are_no_longer_active_are_finished() -> None:
    """The total grows with new stages; finished tasks never decrease."""
    counts = TaskCounts()
    counts.observe({1: (3, 10)})
    assert (counts.finished, counts.total) == (3, 10)
    counts.observe({2: (0, 4)})
    assert (counts.finished, counts.total) == (10, 14)
    counts.observe({2: (1, 4)})
    counts.observe({})
    assert (counts.finished, counts.total) == (14, 14)
