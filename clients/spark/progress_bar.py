"""A progress bar on stderr for the Spark jobs of a command: finished tasks of all tasks that Spark has planned so far.

    with progress_bar(spark, "reading traces"):
        rows = frame.collect()

Without a terminal nothing is shown. Spark plans stages one after another, so the total can grow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

POLL_S: Final = 0.25


class TaskCounts:
    """The tasks of all stages that were active at one of the observations."""

    def __init__(self) -> None:
        self._stages: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<TaskCounts {self.finished} of {self.total}>"

    def observe(self, active: dict[int, tuple[int, int]]) -> None:
        """Record the active stages: stage id -> (finished tasks, tasks). Stages that are no longer active are done."""
        for stage, (_, tasks) in self._stages.items():
            if stage not in active:
                self._stages[stage] = (tasks, tasks)
        self._stages |= active

    @property
    def finished(self) -> int:
        """The number of finished tasks."""
        return sum(finished for finished, _ in self._stages.values())

    @property
    def total(self) -> int:
        """The number of tasks."""
        return sum(tasks for _, tasks in self._stages.values())


@contextmanager
def progress_bar(spark: SparkSession, description: str) -> Iterator[None]:
    """Show the tasks of the body's jobs, if stderr is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar, ended = progress.add_task(description, total=None), Event()

        def poll() -> None:
            counts = TaskCounts()
            while not ended.wait(POLL_S):
                counts.observe(active_stages(spark.sparkContext))
                progress.update(bar, completed=counts.finished, total=counts.total or None)

        thread = Thread(target=poll, name="progress-bar", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def active_stages(context: SparkContext) -> dict[int, tuple[int, int]]:
    """Return the running stages: stage id -> (finished tasks, tasks)."""
    tracker = context.statusTracker()
    infos = {stage: tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()}
    return {stage: (info.numCompletedTasks, info.numTasks) for stage, info in infos.items() if info is not None}
