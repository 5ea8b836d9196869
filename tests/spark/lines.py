"""A query that writes the lines of files into a topic; also as a separate driver process, which can be killed.

    put_lines(directory, "a", 50)
    query = stream(spark, directory, nameServer=..., topic=...)
    with driver(directory, nameServer=..., topic=...) as process: ...

The query ends after the existing lines. Its checkpoint is in the same directory, so the next query continues there.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.harness.limits import PROCESS_LIMIT_S
from tests.spark.session import ROOT, started


def put_lines(directory: Path, name: str, count: int) -> None:
    (directory / "in").mkdir(exist_ok=True)
    (directory / "in" / name).write_text("".join(f"{name} {n}\n" for n in range(count)))


def stream(spark: SparkSession, directory: Path, **options: str) -> StreamingQuery:
    """Start a query from the lines of the files below `directory` to a topic."""
    (directory / "in").mkdir(exist_ok=True)
    lines = spark.readStream.text(str(directory / "in")).selectExpr("value AS body")
    writer = lines.writeStream.format("rocketmq").option("checkpointLocation", str(directory / "checkpoint"))
    return writer.options(**options).trigger(availableNow=True).start()


def wait(query: StreamingQuery) -> None:
    assert query.awaitTermination(PROCESS_LIMIT_S), f"still running: {query.status}"


@contextmanager
def driver(directory: Path, **options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the query in a process group of its own. No process of the group may be left at the end."""
    pairs = [f"{name}={value}" for name, value in options.items()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.spark.lines", str(directory), *pairs]
    with (directory / "driver.txt").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
        process.wait(PROCESS_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the driver does not end:\n{(directory / 'driver.txt').read_text()}") from None
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Run the driver."""
    directory, *pairs = sys.argv[1:]
    options = dict(pair.split("=", 1) for pair in pairs)
    wait(stream(started(Path(directory) / "spark"), Path(directory), **options))


if __name__ == "__main__":
    main()
