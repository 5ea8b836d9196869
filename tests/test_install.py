"""The image's install and start commands, in a new environment and as an unprivileged user.

The test needs no container engine. It runs the RUN commands of the Dockerfile's stages before the last one, which
install the locked packages by hash, and build and install the project with its compiled modules, below a temporary
directory instead of /. Then it starts `CMD` with the image's bind address in an empty data directory, on free ports,
and runs HEALTHCHECK.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.app.host.addresses import LOOPBACK, own_address
from tests.harness.daemon import running

pytestmark = pytest.mark.daemon

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SHIPPED_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
LOCKS = ("requirements.lock", "build.lock")
SHIPPED_FOLDERS = ("src", "protocol", "broker", "clients")
NOBODY = 65534


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a directory that another user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="skylark-install-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def python() -> str:
    """Return an interpreter that any user may start, the current one if possible or if there is no other."""
    current = sys.executable
    candidates = [current, *(shutil.which("python3", path=path) for path in os.environ["PATH"].split(os.pathsep))]
    return next((path for path in candidates if path and is_for_all(path) and can_make_environments(path)), current)


def is_for_all(executable: str) -> bool:
    """Return whether every user may execute the file."""
    path = Path(executable).resolve()
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents))


def can_make_environments(executable: str) -> bool:
    """Return whether the interpreter is new enough and can create virtual environments."""
    wanted = "import ensurepip, sys, venv; assert sys.version_info >= (3, 11)"
    return subprocess.run([executable, "-c", wanted], capture_output=True, check=False).returncode == 0


def install(interpreter: str, home: Path) -> Path:
    """Return the directory of the commands, installed as the image does it from a copy of locks and sources."""
    source, locks = home / "src", home / "locks"
    source.mkdir()
    locks.mkdir()
    for name in LOCKS:
        shutil.copy(ROOT / "deploy" / name, locks)
    for name in SHIPPED_FILES:
        shutil.copy(ROOT / name, source)
    for name in SHIPPED_FOLDERS:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for command in build_commands():
        relocated = re.sub(r"(?<!\S)/(?=(?:opt|own|locks|src|wheels)\b)", f"{home}/", command)
        command = relocated.replace("&& python3 -m", f"&& {interpreter} -m")
        subprocess.run(["bash", "-ec", command], check=True, env=os.environ | {"CFLAGS": "-O0"})  # a third of the time
    shutil.copytree(home / "own", home / "opt" / "skylark", dirs_exist_ok=True)  # COPY --from=build
    return home / "opt" / "skylark" / "bin"


def build_commands() -> list[str]:
    """Return the RUN commands of the Dockerfile's stages before the last one, without continuation lines."""
    stages = "\n".join(DOCKERFILE.split("\nFROM ")[1:-1]).replace("\\\n", " ")
    return [f"true && {command}" for command in re.findall(r"^RUN (.+)$", stages, flags=re.MULTILINE)]


def image_environment() -> dict[str, str]:
    """Return the settings that ENV sets in the image."""
    (line,) = re.findall(r"^ENV (.*SKYLARK_.*)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(re.findall(r"SKYLARK_(\w+)=(\S+)", line))


def health_check(commands: Path, port: int) -> list[str]:
    """Return the command of HEALTHCHECK, for a broker on another port."""
    (arguments,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
    program, *rest = json.loads(arguments)
    return [str(commands / program), *(argument.replace(":5557/", f":{port}/") for argument in rest)]


def data_directory(home: Path, *, of_another_user: bool) -> tuple[Path, dict[str, Any]]:
    """Return an empty directory, and the Popen arguments that start a process as its owner."""
    data = home / "data"
    data.mkdir()
    if not of_another_user:
        return data, {}
    os.chown(data, NOBODY, NOBODY)
    return data, {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@pytest.mark.packaging
def test_an_unprivileged_user_can_run_the_broker_of_the_image(home: Path) -> None:
    """The broker, installed like the image and started by CMD, becomes healthy and stops with status 0. It is bound to
    all addresses, and advertises one that is no loopback address, if the machine has one."""
    interpreter = python()
    commands = install(interpreter, home)
    (command,) = re.findall(r'^CMD \["(\w+)"\]', DOCKERFILE, flags=re.MULTILINE)
    data, user = data_directory(home, of_another_user=os.getuid() == 0 and is_for_all(interpreter))
    settings = {"BIND_ADDRESS": image_environment()["BIND_ADDRESS"]}
    if own_address() == LOOPBACK:
        settings["BROKER_IP1"] = LOOPBACK
    with running([commands / command], data, settings, **user) as daemon:
        subprocess.run(health_check(commands, daemon.health_port), check=True)
        assert f" advertised={own_address()} bind=0.0.0.0 " in daemon.output
        assert daemon.stop() == 0, daemon.output
        assert subprocess.run(health_check(commands, daemon.health_port), capture_output=True, check=False).returncode
    assert (data / "store" / "commitlog").is_dir()
    if user:
        assert (data / "store").stat().st_uid == NOBODY
