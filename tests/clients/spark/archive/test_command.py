"""The command line of the archive job: results, exit codes, and errors that name the remedy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from skylarkmq.clients.spark.archive.command import age_ms, archive, runner_of
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.protocol import compiled
from tests.clients.spark.archive.archived import mark, rows
from tests.harness.stores import message, opened

COMMANDS = CliRunner()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with opened(tmp_path / "store") as it:
        for _ in range(30):
            it.put(message(b"x" * 9_000))
    (tmp_path / "store" / "config").mkdir()
    return tmp_path / "store"


def run(*arguments: object) -> tuple[int, str, str]:
    found = COMMANDS.invoke(archive, [str(argument) for argument in arguments])
    return found.exit_code, found.stdout, found.stderr


def test_the_result_is_a_text_or_an_object(store: Path, tmp_path: Path) -> None:
    """The second run has nothing to do, which is no error."""
    code, out, err = run(store, tmp_path / "archive", "-b", "broker-a")
    assert (code, err) == (0, "")
    assert out.startswith("28 messages in 4 files, ")
    assert "archived up to byte 262144" in out
    code, out, _ = run(store, tmp_path / "archive", "-b", "broker-a", "--include-last", "--json")
    found = json.loads(out)
    assert (code, found["messages"], found["ranges"], found["missed"]) == (0, 2, 1, [])
    assert found["mark"] == mark(store).low_water_mark
    code, out, _ = run(store, tmp_path / "archive", "-b", "broker-a", "--json")
    assert (code, json.loads(out)["messages"]) == (0, 0)
    assert len(rows(tmp_path / "archive")) == 30


@pytest.mark.daemon
@pytest.mark.parametrize("build", ["as installed", "interpreted"])
def test_messages_are_archived_without_pandas(tmp_path: Path, build: str) -> None:
    """PyArrow imports it in many of its functions, which takes half a second of CPU."""
    pytest.importorskip("pandas")
    with opened(tmp_path / "store") as it:
        for number in range(27):
            it.put(message(b"x" * 9_000, properties=b"UNIQ_KEY\x01%032d\x02KEYS\x01a\x02" % number))
        it.put(message(b"x" * 9_000, properties=b"KEYS\x01 several keys\x02"))
        it.put(message(b"x" * 9_000, properties=b"KEYS\x01no \xff UTF-8\x02"))
        it.put(message(b"x" * 9_000))
    (tmp_path / "store" / "config").mkdir()
    lines = (
        "import runpy, sys",
        f"sys.argv = ['archive', {str(tmp_path / 'store')!r}, {str(tmp_path / 'archive')!r}, '-b', 'b']",
        "try: runpy.run_module('skylarkmq.clients.spark.archive.command', run_name='__main__')",
        "finally: print('pandas' in sys.modules)",
    )
    variables = os.environ | ({compiled.SWITCH: "0"} if build == "interpreted" else {})
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert " messages in 4 files, " in done.stdout
    assert done.stdout.endswith("\nFalse\n")


def test_options_reach_the_job(store: Path, tmp_path: Path) -> None:
    """Age, mark, directories of segments and workers."""
    code, out, _ = run(store, tmp_path / "archive", "-b", "b", "--older-than", "99999d", "--json")
    assert (code, json.loads(out)["messages"], mark(store).low_water_mark) == (0, 0, 0)
    (store / "config" / "archive.json").unlink()
    (store / "commitlog").rename(tmp_path / "log")
    arguments = ("--no-mark", "--log-directory", tmp_path / "log", "--json")
    code, out, _ = run(store, tmp_path / "archive", "-b", "b", *arguments)
    assert (code, json.loads(out)["messages"]) == (0, 28)
    assert not (store / "config" / "archive.json").exists()
    assert repr(runner_of(3, None)()) == "<LocalRunner 3>"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nowhere", "archive", "-b", "b"), "is not a store"),
        (("STORE", "archive", "-b", "a/b"), "--broker-name"),
        (("STORE", "archive", "-b", "b", "--older-than", "soon"), "--older-than must be a number with a unit"),
        (("STORE", "archive", "-b", "b", "--table", "t"), "--table must be NAMESPACE.TABLE"),
        (("STORE", "archive", "-b", "b", "--table", "a.t", "--catalog-option", "x"), "'x' must be KEY=VALUE"),
        (("STORE", "nowhere://x", "-b", "b"), "cannot be opened"),
    ],
)
def test_a_job_that_cannot_start_exits_with_2(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    """One line on stderr, without a traceback."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*(str(store) if argument == "STORE" else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert text in err
    assert err.startswith("mqspark-archive: ")
    assert err.count("\n") == 1


def test_a_job_that_fails_exits_with_1(store: Path, tmp_path: Path) -> None:
    """Damage is reported in one line; what was archived before stays."""
    with (store / "commitlog" / f"{65_536:020d}").open("r+b") as file:
        file.seek(200)
        file.write(b"!")
    code, out, err = run(store, tmp_path / "archive", "-b", "broker-a")
    assert (code, out) == (1, "")
    assert "the record at byte 65536 of the log does not match its checksum" in err
    assert err.count("\n") == 1
    assert len(rows(tmp_path / "archive")) == 7
    code, out, _ = run(store, tmp_path / "archive", "-b", "broker-a", "--skip-damaged")
    assert code == 0
    assert "1 damaged records were left out" in out


def test_ages() -> None:
    """A number and one unit."""
    assert [age_ms(text) for text in ("0s", "90m", "12h", "3d")] == [0, 5_400_000, 43_200_000, 259_200_000]
    for text in ("", "3", "d", "-1d", "1.5d", "3 d", "3w"):
        with pytest.raises(NotStarted, match="--older-than"):
            age_ms(text)
