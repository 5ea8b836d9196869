"""The pipeline into a table while its driver, its executors and the broker are killed: each message is there once.

    python -m tests.spark.matrix --spark 4.1.4 --to iceberg --kills 20 --messages 1000000
    python -m tests.spark.matrix --to parquet --kills 3 --messages 20000            with this interpreter's PySpark

Messages are sent in as many portions as there are kills. After each portion, at a random moment, a random process gets
`kill -9`: a driver is started again by the same command, an executor by Spark, the broker on its ports and its store.
At the end the pipeline writes the rest, and the table is compared with the store by readers that are not ours
(tests/spark/read_back.py). The broker is never killed while messages are sent: a message whose response was lost could
be stored twice, which has nothing to do with the pipeline.

`--spark` selects the interpreter: `.tox/spark-4.1/bin/python` for 4.1.4, or the one of `--python`. The interpreter also
needs the readers: deltalake, pyiceberg[sql-sqlite], duckdb. Spark downloads jars (`--ivy`: their cache).

Exit codes: 0 each message once; 1 a difference, or a run that failed; 2 a wrong argument.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import pyspark

from skylarkmq import BrokerError, Message, Producer
from skylarkmq.clients.spark.tables.availability import DELTA_JARS, ICEBERG_JARS
from skylarkmq.protocol.codes import ResponseCode
from tests.harness.daemon import STORE
from tests.spark.driver_process import PipelineProcess
from tests.spark.read_back import Compared, Rows, compare, delta_rows, iceberg_rows, parquet_rows, stored_rows
from tests.spark.scene import PATIENT, Scene, scene

TOPIC: Final = "Orders"
QUEUES: Final = 4
NAME: Final = ("db", "messages")
DRIVER, EXECUTOR, BROKER = "driver", "executor", "broker"
VICTIMS: Final = (DRIVER, EXECUTOR, BROKER)
AT_ONCE: Final = 200
SMALL_LOG: Final = "--conf=spark.databricks.delta.snapshotPartitions=2"
ROOT: Final = Path(__file__).resolve().parents[2]


class Target:
    """Where the pipeline writes, and how to read it back. `spark`: the version of PySpark."""

    def __init__(self, to: str, directory: Path, spark: str) -> None:
        self._to = to
        self._lake = directory / "lake"
        self._catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{self._lake}"}
        if to == "iceberg":
            self._catalog = {"type": "hadoop", "warehouse": f"file://{self._lake}"}
        self._jars = {"delta": DELTA_JARS, "iceberg": ICEBERG_JARS}.get(to, {}).get(".".join(spark.split(".")[:2]), "")

    @property
    def is_available(self) -> bool:
        """Whether this version of Spark has jars for the format, or the format needs none."""
        return bool(self._jars) or self._to in ("parquet", "pyiceberg")

    def arguments(self) -> list[str]:
        """Return the arguments of the pipeline."""
        if self._to == "parquet":
            return ["--to", "parquet", "-o", str(self._lake)]
        if self._to == "delta":
            return ["--to", "delta", "-o", str(self._lake), *jars(self._jars), SMALL_LOG]
        engine = jars(self._jars) if self._to == "iceberg" else ["--engine", "pyiceberg"]
        conf = [f"--conf=spark.sql.catalog.lake.{name}={value}" for name, value in self._catalog.items()]
        return ["--to", "iceberg", "-o", ".".join(("lake", *NAME)), *engine, *conf]

    def rows(self) -> Rows:
        """Return the rows of the table."""
        if self._to == "parquet":
            return parquet_rows(self._lake)
        return delta_rows(self._lake) if self._to == "delta" else iceberg_rows(self._lake, self._catalog, NAME)


def jars(coordinates: str) -> list[str]:
    """Return the arguments for a package of jars."""
    return [f"--conf=spark.jars.packages={coordinates}"]


def message_of(number: int, size: int) -> Message:
    """Return the message of a number: body, keys, tags and properties follow from it."""
    body = (b"%d " % number).ljust(size, b"abcdefgh"[number % 8 : number % 8 + 1])
    properties = {"n": str(number), "name": f"größer {number % 7}"}
    return Message(TOPIC, body, tags=f"t{number % 3}", keys=[f"k{number}", f"all{number % 10}"], properties=properties)


def send(namesrv: str, numbers: range, size: int) -> None:
    """Send the messages of these numbers."""

    async def run() -> None:
        async with Producer("matrix", namesrv=namesrv, settings=PATIENT) as producer:
            for first in range(numbers.start, numbers.stop, 20 * AT_ONCE):
                portions = [
                    range(begin, min(begin + AT_ONCE, numbers.stop))
                    for begin in range(first, min(first + 20 * AT_ONCE, numbers.stop), AT_ONCE)
                ]
                await asyncio.gather(
                    *(accepted(producer, [message_of(number, size) for number in portion]) for portion in portions)
                )

    asyncio.run(run())


async def accepted(producer: Producer, messages: list[Message]) -> None:
    """Send messages that fit into one request. A busy machine's broker refuses it as a whole: send it again."""
    while True:
        try:
            await producer.send_batch(messages)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_BUSY:
                raise
            await asyncio.sleep(0.5)
        else:
            return


class Trial:
    """One run: a broker, a pipeline that is started as often as needed, and kills."""

    def __init__(
        self, options: argparse.Namespace, directory: Path, broker: Scene, report: Callable[[str], None]
    ) -> None:
        self._options = options
        self._directory = directory
        self._broker = broker
        self._report = report
        self._chance = Random(options.seed)
        self._target = Target(options.to, directory, pyspark.__version__)
        self._pipeline: PipelineProcess | None = None
        self._running = ExitStack()
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self.ends = 0  # of drivers that were not killed

    def run(self) -> None:
        """Send, kill, and write the rest."""
        portions = split(self._options.messages, self._options.kills)
        victims = [VICTIMS[number % 3] for number in range(self._options.kills)]
        self._chance.shuffle(victims)
        with self._running:
            for number, (victim, portion) in enumerate(zip(victims, portions, strict=True)):
                self._start_if_needed()
                send(self._broker.namesrv, portion, self._options.size)
                self._kill(victim)
                self._report(f"kill {number + 1} of {len(victims)}: {victim}, {portion.stop} messages sent")
            self._end()

    def _start_if_needed(self, *more: str) -> PipelineProcess:
        if self._pipeline is None or not self._pipeline.is_running:
            self._running.close()
            arguments = ["-n", self._broker.namesrv, "-t", TOPIC, "--checkpoint", str(self._directory / "checkpoint")]
            arguments += ["--option", "includeProperties=true", "--max-rows", str(self._options.max_rows)]
            arguments += [f"--conf=spark.jars.ivy={self._options.ivy}"] if self._options.ivy else []
            arguments += [*self._target.arguments(), *(more or ("--interval", "0 seconds"))]
            self._pipeline = PipelineProcess(Path(sys.executable), self._directory, arguments)
            self._running.enter_context(self._pipeline)
            self.starts += 1
        return self._pipeline

    def _kill(self, victim: str) -> None:
        """Kill a victim at a random moment after the first batch of a driver; a driver that has ended is restarted."""
        while True:
            pipeline = self._start_if_needed()
            if not pipeline.wait_for_batch():
                self.ends += 1
                self._report(f"the driver ended: {pipeline.output[-2000:]}")
                continue
            time.sleep(self._chance.uniform(0.0, self._options.pause))
            if victim == BROKER:
                self._broker.kill()
                time.sleep(self._chance.uniform(0.0, self._options.pause))
                self._broker.restart()
                is_done = True
            else:
                is_done = pipeline.kill_driver() if victim == DRIVER else pipeline.kill_executor(self._chance)
            if is_done:
                self.kills[victim] += 1
                return

    def _end(self) -> None:
        """Stop the pipeline, and write what is left."""
        if self._pipeline is not None and self._pipeline.is_running:
            self._pipeline.kill_driver()
        last = self._start_if_needed("--available-now")
        code = last.wait()
        assert code == 0, f"the last run failed with {code}:\n{last.output[-4000:]}"

    def compare(self) -> Compared:
        """Return the comparison of the table with the store, once the broker has stopped."""
        self._broker.daemon.stop(signal.SIGTERM)
        return compare(self._target.rows(), stored_rows(self._directory / STORE, TOPIC), self._options.messages)


def split(messages: int, parts: int) -> list[range]:
    """Return `parts` ranges of about the same length."""
    bounds = [messages * part // parts for part in range(parts + 1)]
    return [range(begin, end) for begin, end in pairwise(bounds)]


def run(options: argparse.Namespace, directory: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Run a trial; return its figures."""
    begin = time.monotonic()
    settings = {"mappedFileSizeCommitLog": 256 << 20, "mappedFileSizeConsumeQueue": 6_000_000}
    with scene(directory, **settings) as broker:
        broker.create(TOPIC, QUEUES)
        trial = Trial(options, directory, broker, report)
        trial.run()
        compared = trial.compare()
    return {
        "spark": pyspark.__version__,
        "to": options.to,
        "seed": options.seed,
        "kills": dict(trial.kills),
        "starts": trial.starts,
        "ended": trial.ends,
        **compared._asdict(),
        "is_exact": compared.is_exact,
        "seconds": round(time.monotonic() - begin),
    }


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark", help="version of PySpark; default: this interpreter's")
    parser.add_argument("--python", type=Path, help="interpreter with that version")
    parser.add_argument("--to", choices=("parquet", "delta", "iceberg", "pyiceberg"), default="parquet")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a body")
    parser.add_argument("--max-rows", type=int, help="messages per batch; default: half of what is sent between kills")
    parser.add_argument("--pause", type=float, default=3.0, help="maximum seconds before a kill, and before a restart")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ivy", type=Path, help="directory of Spark's downloaded jars")
    parser.add_argument("--directory", type=Path, help="where the temporary files are")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    options.max_rows = options.max_rows or max(options.messages // options.kills // 2, 1)
    return options


def python_of(options: argparse.Namespace) -> Path | None:
    """Return the interpreter to use; None: this one. Exits with 2 if there is none."""
    if options.python is None and options.spark in (None, pyspark.__version__):
        return None
    minor = ".".join((options.spark or "").split(".")[:2])
    python: Path = options.python or ROOT / ".tox" / f"spark-{minor}" / "bin" / "python"
    if python == Path(sys.executable):
        return None
    if not python.exists():
        print(f"{python} does not exist: run tox -e spark-{minor} --notest, or give --python", file=sys.stderr)
        raise SystemExit(2)
    return python


def main() -> int:
    """Run the command, if necessary in the interpreter of the wanted version."""
    options = parsed()
    python = python_of(options)
    if python is not None:
        command = [str(python), "-m", "tests.spark.matrix", *sys.argv[1:], "--python", str(python)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        return subprocess.run(command, env=environment, check=False).returncode
    if not Target(options.to, Path(), pyspark.__version__).is_available:
        print(f"there are no jars of {options.to} for PySpark {pyspark.__version__}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="matrix-", dir=options.directory) as directory:
        figures = run(options, Path(directory), lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(figures) if options.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 0 if figures["is_exact"] else 1


if __name__ == "__main__":
    sys.exit(main())
