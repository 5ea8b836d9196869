"""The Spark session of the tests. Workers import this source tree, whatever their working directory."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from skylarkmq.clients.spark import register

ROOT = Path(__file__).resolve().parents[2]
PYTHON_PATH = (str(ROOT / "tests" / "spark" / "worker_path"), str(ROOT))
"""Of Python workers: the module that they import at their start, and the tests."""
JAVA_OPTIONS = (  # tests are too short for C2, and the verification of Spark's own classes takes a sixth of the CPU
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.submit.pyFiles": "",  # else the jars of --packages: before each task a worker reads the names of their files
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
}


def started(home: Path, master: str = "local[2]", **settings: str) -> SparkSession:
    """Return this process's session; its files are below `home`.

    Double underscores in a setting's name stand for dots.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([*PYTHON_PATH, *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master(master).appName("tests")
    given = {name.replace("__", "."): value for name, value in settings.items()}
    places = {"spark.local.dir": str(home), "spark.sql.warehouse.dir": str(home / "warehouse")}
    for name, value in (SETTINGS | places | given).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    return session
