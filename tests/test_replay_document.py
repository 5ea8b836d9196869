"""Replays in docs/use/spark/archive.md: tables and options are those of the code, the example runs."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from skylarkmq import Admin
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.messages.copied_properties import DROPPED
from skylarkmq.clients.spark.replay.command import replay
from skylarkmq.clients.spark.replay.copies import MARK
from skylarkmq.clients.spark.replay.journal import MAP_SCHEMA
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.spark.replay.world import rows

DOCUMENT = (Path(__file__).resolve().parent.parent / "docs" / "use" / "spark" / "archive.md").read_text()
SECTION = DOCUMENT.partition("\n## Replay\n")[2].partition("\n## ")[0]


def part(heading: str) -> str:
    """Return the text below a heading of the section."""
    return SECTION.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]


def test_every_dropped_property_is_named() -> None:
    """By its name or by a pattern; no other property is named as dropped."""
    column = " ".join(line.split("|")[3] for line in part("What a copy keeps").splitlines() if line.count("|") == 4)
    named = re.findall(r"`([^`]+)`", column)
    assert [name for name in sorted(DROPPED - {MARK}) if not any(fnmatch(name, pattern) for pattern in named)] == []
    assert [pattern for pattern in named if not any(fnmatch(name, pattern) for name in DROPPED)] == []


def test_the_columns_of_the_map_are_listed() -> None:
    """In the order of the files."""
    lines = re.findall(r"^\| ([\w, ]+) \| ", part("The map of offsets"), re.MULTILINE)
    assert ", ".join(lines[1:]).split(", ") == MAP_SCHEMA.names


def test_options_and_defaults_are_those_of_the_command() -> None:
    """Each option in the text exists, and the time to settle is the default."""
    command: Any = typer.main.get_command(replay)
    options = {option for parameter in command.params for option in parameter.opts}
    assert [name for name in re.findall(r"--[a-z][a-z-]+", SECTION) if name not in options] == []
    assert f"for {Limits().settle_s:g} s (`--settle`)" in SECTION


def test_the_example_in_python_runs(
    tmp_path: Path, mq_broker: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the addresses of a broker."""
    pq.write_table(rows([MessageQueue("Orders", "a", 0)], 3, keys="order-4711"), tmp_path / "archive.parquet")
    (code,) = re.findall(r"^```python\n(.*?)^```", part("From Python"), re.MULTILINE | re.DOTALL)
    code = code.replace("/archive", str(tmp_path / "archive.parquet")).replace("127.0.0.1:9876", mq_broker.namesrv)

    async def create() -> None:
        async with Admin(namesrv=mq_broker.namesrv) as admin:
            await admin.create_topic("Orders", 1)

    run(create())
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "replay.py", "exec"), {"__name__": "__main__"})
    assert "sent=3" in capsys.readouterr().out
