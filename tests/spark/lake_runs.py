"""Runs of the pipeline from numbered messages into a table; every fifth message does not parse, and is a bad row."""

from collections import Counter

from typer.testing import CliRunner

from skylarkmq import Message
from skylarkmq.clients.spark.pipeline.command import pipeline
from tests.spark.lakes import Lake
from tests.spark.scene import Scene


def run(lake: Lake, *arguments: str, code: int = 0) -> str:
    """Run the command to its end; return its output on stderr."""
    given = ["-o", lake.output, "--checkpoint", str(lake.checkpoint), "--json-schema", "id BIGINT NOT NULL"]
    given += ["--pattern", "Orders.*", *lake.options, *arguments]
    done = CliRunner().invoke(pipeline, given)
    assert done.exit_code == code, done.output
    return done.stderr


def send(broker: Scene, topic: str, numbers: range) -> None:
    bodies = [b'{"id": %d, "text": "%s"}' % (n, b"t" * 300) if n % 5 else b"bad %d" % n for n in numbers]
    broker.send_all(Message(topic, body, keys=f"k{n}") for n, body in zip(numbers, bodies, strict=True))


def keys(lake: Lake, suffix: str = "") -> Counter[str]:
    return Counter(row["keys"] for row in lake.rows(suffix))


def assert_once(lake: Lake, numbers: range) -> None:
    assert keys(lake) == Counter(f"k{n}" for n in numbers if n % 5)
    assert keys(lake, "_bad") == Counter(f"k{n}" for n in numbers if n % 5 == 0)
