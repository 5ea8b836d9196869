"""A light install: the SDK and what it needs, without the packages of the broker, mqbench or Spark."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.test_distribution import PROJECT, built_wheel, declared

pytestmark = pytest.mark.packaging

TEST_RUNNER = ("pytest", "iniconfig", "packaging", "pluggy", "pygments")
SUITE = "def test_orders(mq_broker):\n    raise AssertionError('there is no broker to run this with')\n"


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of commands of an environment with the pure wheel, its dependencies, and pytest."""
    home = tmp_path_factory.mktemp("light")
    wheel = built_wheel(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel"), SKYLARK_PURE="1")
    venv.create(home, symlinks=True, with_pip=True)
    (site,) = home.glob("lib/python*/site-packages")
    for name in (*declared(PROJECT["dependencies"]), *TEST_RUNNER):
        copy_distribution(name, site)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-index", str(wheel.filename)], check=True, capture_output=True, text=True)
    return home / "bin"


def copy_distribution(name: str, site: Path) -> None:
    """Copy an installed distribution, its metadata included, into another environment."""
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


def run(command: list[str | Path], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_the_sdk_needs_only_its_own_dependencies(light: Path, tmp_path: Path) -> None:
    """pip finds every dependency of the wheel installed, and the public names can be imported."""
    program = "import skylarkmq; [getattr(skylarkmq, name) for name in skylarkmq.__all__]; import skylarkmq.blocking"
    imported = run([light / "python", "-c", program], tmp_path)
    assert imported.returncode == 0, imported.stderr


def test_arrow_without_its_packages_names_the_extra(light: Path, tmp_path: Path) -> None:
    """The import error contains the command that installs them."""
    imported = run([light / "python", "-c", "import skylarkmq.arrow"], tmp_path)
    assert imported.returncode == 1
    assert "pip install 'skylarkmq[arrow]'" in imported.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("mqbroker", "broker"),
        ("mqnamesrv", "broker"),
        ("mqadmin", "admin"),
        ("mqbench", "bench"),
        ("mqspark-pipeline", "spark"),
        ("mqspark-replay", "spark"),
    ],
)
def test_a_command_without_its_packages_names_the_extra_in_one_line(
    light: Path, tmp_path: Path, command: str, extra: str
) -> None:
    """The commands are installed by every wheel, and exit 1 without a traceback where their packages are missing."""
    done = run([light / command, "--help"], tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"pip install 'skylarkmq[{extra}]'" in done.stderr


def test_the_fixture_without_the_broker_names_the_extra_in_one_line(light: Path, tmp_path: Path) -> None:
    """pytest loads the plugin, and a test that asks for `mq_broker` fails with the reason, not with a traceback."""
    (tmp_path / "test_orders.py").write_text(SUITE)
    done = run([light / "python", "-m", "pytest", "-q"], tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 error" in done.stdout
    assert "Traceback" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if "pip install 'skylarkmq[broker]'" in line]
    assert lines, done.stdout
    assert lines[0].startswith("broker.app.in_process needs the package "), lines


def test_the_plugin_loads_no_module_of_the_broker() -> None:
    """pytest imports the plugin in every project where Skylark is installed, also in those that do not use it."""
    program = "import sys, skylarkmq.testing; print(*[name for name in sys.modules if name.startswith('skylarkmq.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["skylarkmq.commands", "skylarkmq.testing"]
