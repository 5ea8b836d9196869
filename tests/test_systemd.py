"""The systemd units: systemd accepts them, their hardening holds, and a daemon runs under their restrictions."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.broker.config.parsing import from_file
from skylarkmq.broker.config.sections import Machine, load_namesrv
from skylarkmq.protocol.codes import RequestCode
from tests.harness.daemon import MQBROKER, running
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient

ROOT: Final = Path(__file__).resolve().parent.parent
UNITS: Final = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
FILTERED: Final = ROOT / "tests" / "harness" / "filtered_calls.py"
EXPOSURE_LIMIT: Final = 15  # in tenths, of 100; without hardening a service has 96
SEND: Final = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "TAGS\x01t\x02", "m": False,
}  # fmt: skip

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
every_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), flags=re.MULTILINE)


@needs_systemd
@every_unit
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    """With the commands in place, systemd-analyze has no complaint."""
    for command in ("mqbroker", "mqnamesrv"):
        (tmp_path / command).write_text("#!/bin/sh\n")
        (tmp_path / command).chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/skylark/bin/", f"{tmp_path}/"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@every_unit
def test_the_exposure_of_the_unit_is_low(unit: Path) -> None:
    """systemd-analyze rates the hardening, from 0 to 100."""
    command = [
        "systemd-analyze",
        "security",
        "--offline=true",
        f"--threshold={EXPOSURE_LIMIT}",
        "--no-pager",
        str(unit),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@every_unit
def test_a_unit_starts_an_installed_command_as_its_user(unit: Path) -> None:
    """The command is a script of the package, and the user is that of the sysusers file."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (started,) = values(unit, "ExecStart")
    command, option, _ = started.split()
    assert command.removeprefix("/opt/skylark/bin/") in scripts
    assert option == "-c"
    (user,) = values(unit, "User")
    users = (ROOT / "deploy" / "systemd" / "skylark.sysusers.conf").read_text()
    assert re.findall(r"^u (\S+)", users, flags=re.MULTILINE) == [user]
    assert values(unit, "Type") == ["notify"]
    assert values(unit, "ProtectSystem") == ["strict"]
    assert values(unit, "NoNewPrivileges") == ["yes"]
    (state,) = values(unit, "StateDirectory")
    assert values(unit, "WorkingDirectory") == [f"/var/lib/{state}"]


def test_the_sample_of_the_name_server_has_its_defaults() -> None:
    """It loads without a message, also with its commented keys; only the path differs."""
    text = (ROOT / "deploy" / "namesrv.conf").read_text()
    machine = Machine("host", "10.0.0.5", Path("/home/mq"), str)
    loaded = load_namesrv(from_file(text, "namesrv.conf"), machine)
    assert loaded.warnings == loaded.notes == []
    assert loaded.config.namesrv.kv_config_path == Path("kvConfig.json")
    assert [row.key for row in loaded.effective if row.value != default(row.key, machine)] == ["kvConfigPath"]
    with_optional_keys = re.sub(r"^#(?=[\w.]+=)", "", text, flags=re.MULTILINE)
    assert load_namesrv(from_file(with_optional_keys, "namesrv.conf"), machine).config.ops.port == 5558


def default(key: str, machine: Machine) -> str:
    return next(row.value for row in load_namesrv([], machine).effective if row.key == key)


@needs_systemd
@pytest.mark.daemon
def test_the_filter_of_these_tests_refuses_calls() -> None:
    """Calls outside of the list fail, and memory that is written does not become executable."""
    program = """
import mmap, os
for call in (lambda: os.chown("/", 0, 0), lambda: os.sched_setaffinity(0, {0}), lambda: os.chroot("/"),
             lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)):
    try:
        call()
    except PermissionError:
        continue
    raise SystemExit("allowed")
"""
    command = [sys.executable, str(FILTERED), *filters(), "--", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def filters() -> list[str]:
    (broker,) = [unit for unit in UNITS if "broker" in unit.name]
    return values(broker, "SystemCallFilter")


@needs_systemd
@pytest.mark.daemon
def test_a_broker_runs_with_the_allowed_system_calls_only(tmp_path: Path) -> None:
    """Under the unit's SystemCallFilter and MemoryDenyWriteExecute it stores and stops, and logs no refused call."""
    command = [sys.executable, str(FILTERED), *filters(), "--", *MQBROKER]
    with running(command, tmp_path) as daemon:
        with RawClient(LOOPBACK, daemon.broker_port) as client:
            for size in (10, 5_000, 200_000):
                assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, bytes(size)).code == 0
        assert daemon.page("/readyz")[0] == 200
        assert daemon.stop() == 0
    assert "Operation not permitted" not in daemon.output
    assert " ERROR " not in daemon.output
