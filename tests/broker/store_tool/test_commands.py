"""`mqbroker store`: its output and its exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from skylarkmq.broker.app.cli import mqbroker
from skylarkmq.protocol.message import encode_properties, tags_code
from tests.harness.daemon import MQBROKER, running
from tests.harness.golden_stores import Golden, golden_store
from tests.harness.stores import message, opened

DAMAGED_BYTE = 90


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    return golden_store("4.9.8", "clean", tmp_path / "store")


@pytest.fixture
def store(golden: Golden) -> Path:
    return golden.root


def run(*arguments: object, answer: str | None = None, columns: int = 100) -> Result:
    environment = {"COLUMNS": str(columns), "TERM": "dumb", "TZ": "UTC"}
    return CliRunner().invoke(mqbroker, ["store", *map(str, arguments)], input=answer, env=environment)


def damage(store: Path) -> None:
    path = store / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[DAMAGED_BYTE] ^= 1
    path.write_bytes(data)


# untrusted text


def test_no_control_character_reaches_the_terminal(tmp_path: Path) -> None:
    """From tags, keys and properties, in tables and as JSON, and from the topics that findings name."""
    evil = "\x1b[2J\x9b31m\u202eabc\x7f\n\u2028"
    with opened(tmp_path) as it:
        properties = encode_properties({"TAGS": f"t{evil}", "KEYS": f"k{evil}", "UNIQ_KEY": "U", f"p{evil}": evil})
        body = f"body{evil}".encode()
        it.put(message(body, properties=properties.encode(), tags_code=tags_code(f"t{evil}")))
    (tmp_path / "consumequeue" / f"T{evil}" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / f"T{evil}" / "0" / f"{0:020}").write_bytes(b"short")
    table = run("dump", tmp_path, columns=300).stdout
    assert all(line.isprintable() for line in table.splitlines())
    assert len(table.splitlines()) == 2
    assert "t\\x1b[2J" in table
    lines = run("dump", tmp_path, "--json").stdout.splitlines()
    assert [json.loads(line)["tags"] for line in lines] == [f"t{evil}"]
    assert all(line.isprintable() for line in lines)
    done = run("verify", tmp_path)
    assert done.exit_code in {0, 1}
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert all(line.isprintable() for line in run("verify", tmp_path, "--json").stdout.splitlines())


# verify


def test_a_clean_store_is_reported_as_clean(store: Path) -> None:
    """Exit code 0, nothing on stdout, one line on stderr."""
    done = run("verify", store)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{store}: clean\n")


def test_damage_is_exit_code_1_with_file_and_offset(store: Path) -> None:
    """One line per finding: severity, file:byte, problem, consequence; however narrow the terminal."""
    damage(store)
    done = run("verify", store, columns=40)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    expected = (
        "damage  commitlog/00000000000000000000:0  no valid record from 0 to 359: body CRC; its messages are lost; "
    )
    assert lines[0].startswith(expected)
    assert all(line.startswith("damage ") for line in lines)
    assert done.stderr == f"{store}: {len(lines)} damage\n"


def test_damage_that_the_next_start_repairs_is_exit_code_0(tmp_path: Path) -> None:
    """A store after a crash has warnings and a note."""
    root = golden_store("4.9.8", "torn", tmp_path).root
    done = run("verify", root)
    assert (done.exit_code, done.stderr) == (0, f"{root}: 4 warning, 1 note\n")


def test_findings_as_json_lines(store: Path) -> None:
    """--json prints one object per line, for scripts."""
    damage(store)
    findings = [json.loads(line) for line in run("verify", store, "--json").stdout.splitlines()]
    assert {"severity", "file", "offset", "what", "follows"} == set(findings[0])
    assert (findings[0]["severity"], findings[0]["offset"]) == ("damage", 0)


def test_sizes_from_the_settings_of_the_broker(store: Path, tmp_path: Path) -> None:
    """Sizes of -c and --set are used, and other keys of the file are ignored."""
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=131072\nbrokerName=a\n")
    done = run("verify", store, "-c", config)
    assert done.exit_code == 1
    assert "the file has 65536 bytes, segments here have 131072" in done.stdout
    assert run("verify", store, "-c", config, "--set", "mappedFileSizeCommitLog=65536").exit_code == 0
    levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 3h"
    assert "SCHEDULE_TOPIC_XXXX-17@0" in run("verify", store, "--set", f"messageDelayLevel={levels}").stdout


# dump


def test_records_as_a_table_that_fits(golden: Golden) -> None:
    """One line per record below the headings, no wider than the terminal, and a hint if there are more."""
    for columns in (80, 120):
        done = run("dump", golden.root, columns=columns)
        lines = done.stdout.splitlines()
        assert lines[0].split() == ["offset", "size", "queue", "at", "stored", "tags", "keys", "body"]
        assert [int(line.split()[0]) for line in lines[1:]] == [r["physicalOffset"] for r in golden.records[:50]]
        assert max(map(len, lines)) <= columns
        assert done.stderr == "the first 50; more by --limit, --from, or --json\n"


def test_records_as_json_lines(golden: Golden) -> None:
    """All of them, with the names of the manifest."""
    lines = run("dump", golden.root, "--json").stdout.splitlines()
    assert [json.loads(line)["physicalOffset"] for line in lines] == [r["physicalOffset"] for r in golden.records]


def test_one_queue_from_an_offset(store: Path) -> None:
    """--topic, --queue, --from and --limit select records."""
    choice = ("--topic", "FixtureEvents", "--queue", 0, "--from", 10, "--limit", 3, "--json")
    lines = run("dump", store, *choice).stdout.splitlines()
    assert [json.loads(line)["queueOffset"] for line in lines] == [10, 11, 12]


def test_a_body_has_no_effect_on_the_terminal(store: Path) -> None:
    """Control characters of binary bodies are shown as dots."""
    out = run("dump", store, "--topic", "FixtureRaw", "--limit", 100).stdout
    assert all(character.isprintable() for character in out.replace("\n", ""))


# repair


def test_repair_asks_first(store: Path) -> None:
    """No input and "n" give exit code 2, and nothing is changed."""
    before = sorted(path.name for path in store.iterdir())
    for answer in ("n\n", ""):
        assert run("repair", store, answer=answer).exit_code == 2
    assert sorted(path.name for path in store.iterdir()) == before


def test_repair_rebuilds_and_names_the_old_files(store: Path) -> None:
    """After "y", queues and index are rebuilt, and the old ones are kept beside them."""
    shutil.rmtree(store / "consumequeue" / "FixtureOrders")
    assert run("verify", store).exit_code == 1
    done = run("repair", store, answer="y\n")
    assert done.exit_code == 0
    first, *kept = done.stdout.splitlines()[-3:]  # the runner shows the answer before
    assert first == "227 records: 29 queues, 3 index files built"
    for line, name in zip(kept, ("consumequeue", "index"), strict=True):
        assert Path(line.removeprefix("kept: ")).name.startswith(f"{name}.before-repair-")
        assert Path(line.removeprefix("kept: ")).is_dir()
    assert run("verify", store).exit_code == 0


def test_repair_cannot_repair_the_log(store: Path) -> None:
    """Damage of the log is reported, with exit code 1."""
    damage(store)
    done = run("repair", store, "--yes")
    assert done.exit_code == 1
    assert done.stdout.startswith("damage  commitlog/00000000000000000000:0  no valid record from 0 to 359: body CRC")


@pytest.mark.daemon
def test_the_store_of_a_running_broker_is_verified_but_not_repaired(tmp_path: Path) -> None:
    """verify runs; repair is refused in one line with exit code 2."""
    with running(directory=tmp_path) as daemon:
        root = tmp_path / "store"
        assert run("verify", root).exit_code == 0
        refused = run("repair", root, "--yes")
        assert daemon.stop() == 0
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"mqbroker store repair: the store directory {root} is in use by another broker\n"


# usage


@pytest.mark.parametrize("command", ["verify", "dump", "repair"])
def test_help_has_examples(command: str) -> None:
    """Each command shows how it is used."""
    assert f"mqbroker store {command} ./store" in run(command, "--help").stdout


def test_mistakes_are_exit_code_2(tmp_path: Path, store: Path) -> None:
    """No store, an unknown option, an invalid setting, a missing file: one reason on stderr, nothing on stdout."""
    for arguments, reason in (
        (("verify", tmp_path), f"mqbroker store verify: {tmp_path} is not a store: it has no commitlog/"),
        (("verify", store, "-x"), "No such option: -x"),
        (("dump", store, "--from", "-1"), "Invalid value for '--from'"),
        (("verify", store, "--set", "maxIndexNum=x"), "maxIndexNum=x: expected a whole number"),
        (("verify", store, "-c", tmp_path / "none.conf"), "No such file or directory"),
        (("mend", store), "No such command 'mend'"),
    ):
        done = run(*arguments)
        assert (done.exit_code, done.stdout) == (2, ""), arguments
        assert reason in done.stderr


def test_options_of_the_daemon_before_store_are_rejected(store: Path) -> None:
    """`mqbroker -c x store verify` would silently ignore the file; it is rejected instead."""
    done = CliRunner().invoke(mqbroker, ["-c", "b.conf", "store", "verify", str(store)])
    assert done.exit_code == 2
    assert "put the options of store after it" in done.stderr


@pytest.mark.daemon
def test_as_a_process(store: Path) -> None:
    """The installed command returns the exit code to its shell, and prints no progress bar to a pipe."""
    damage(store)
    done = subprocess.run([*MQBROKER, "store", "verify", store], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{store}: {len(done.stdout.splitlines())} damage"]


@pytest.mark.daemon
def test_the_daemon_does_not_import_modules_of_these_commands() -> None:
    """Importing the commands imports neither rich nor the check."""
    costly = ("rich", "skylarkmq.broker.store.fsck")
    code = f"import sys, skylarkmq.broker.app.cli; print([m for m in sys.modules if m.startswith({costly})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
