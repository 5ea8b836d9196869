"""Where tasks run: in this process, in worker processes, or on Spark.

A runner yields the entry of each task as it completes, in any order. The first failure ends it, after the tasks that
run at that time: their entries are in the manifest all the same.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing.connection import wait
from typing import Protocol

import msgspec
from pyspark.sql import SparkSession

from skylarkmq.clients.spark.archive.directory import Entry
from skylarkmq.clients.spark.archive.task import ArchiveTask, run_task


class Runner(Protocol):
    """Runs tasks."""

    def run(self, tasks: Sequence[ArchiveTask]) -> Iterator[Entry]:
        """Yield the entry of each task when it is complete. Raises the error of the first task that fails."""


class LocalRunner:
    """Runs tasks one by one in this process, or in `workers` processes."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, tasks: Sequence[ArchiveTask]) -> Iterator[Entry]:
        """Yield the entry of each task when it is complete."""
        if self._workers == 1 or len(tasks) < 2:
            yield from map(run_task, tasks)
            return
        context = multiprocessing.get_context("spawn")
        count = min(self._workers, len(tasks))
        with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as pool:
            yield from _completed(pool, [pool.submit(run_task, task) for task in tasks])

    def __repr__(self) -> str:
        return f"<LocalRunner {self._workers}>"


class SparkRunner:
    """Runs each task as a Spark job with one task, as many at a time as the session has cores.

    The jobs are those of an RDD: PySpark's functions on Arrow batches need pandas.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jobs = spark.sparkContext.defaultParallelism

    def run(self, tasks: Sequence[ArchiveTask]) -> Iterator[Entry]:
        """Yield the entry of each task when it is complete."""
        with ThreadPoolExecutor(self._jobs) as pool:
            yield from _completed(pool, [pool.submit(self._run, task) for task in tasks])

    def _run(self, task: ArchiveTask) -> Entry:
        (entry,) = self._spark.sparkContext.parallelize([msgspec.json.encode(task)], 1).map(_run_encoded).collect()
        return msgspec.json.decode(entry, type=Entry)

    def __repr__(self) -> str:
        return f"<SparkRunner jobs={self._jobs}>"


def _run_encoded(task: bytes) -> bytes:
    return msgspec.json.encode(run_task(msgspec.json.decode(task, type=ArchiveTask)))


def _completed(pool: Executor, futures: "list[Future[Entry]]") -> Iterator[Entry]:
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """End this worker when its parent is killed: an orphan would write to an archive that another job has locked."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
