"""What is shipped: the wheel's content, its metadata, and dependencies that are what the code imports."""

import ast
import importlib.metadata
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from protocol import compiled

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("protocol", "broker", "clients")

COMPILE_TIME = {"cython"}  # what the sources of compiled leaves import is gone once they are compiled
pytestmark = pytest.mark.xdist_group("distribution")  # one wheel for all

TOP_LEVEL = "clients/spark/top_level"
PYTEST_PLUGIN = "broker/testing.py"  # imported by pytest itself, and by nobody else


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of what it is built from, without a network."""
    return built_wheel(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel"))


def built_wheel(source: Path, target: Path, **environment: str) -> zipfile.ZipFile:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", *PACKAGES):
        (source / name).symlink_to(ROOT / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source)]
    subprocess.run([*pip, *options], check=True, capture_output=True, text=True, env=os.environ | environment)
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def sources() -> set[str]:
    """Every module of ours, by its place in the wheel; those of TOP_LEVEL lie beside the packages there."""
    return {
        str(path.relative_to(ROOT / TOP_LEVEL if path.parent == ROOT / TOP_LEVEL else ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".pxd"} or path.name == "py.typed"
    }


def test_the_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """protocol, broker and clients are shipped whole, with type markers and what could be compiled; tests are not."""
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    built = {name for name in shipped if name.endswith(".so")}
    assert shipped - built == sources()
    assert {name.split(".")[0] for name in built} <= {f"protocol/compiled/{leaf}" for leaf in compiled.LEAVES}
    assert {f"{package}/py.typed" for package in PACKAGES} <= shipped


def test_a_machine_without_a_compiler_builds_the_same_without_leaves(tmp_path: Path) -> None:
    """What cannot be compiled is left out, and nothing fails."""
    without = built_wheel(tmp_path, tmp_path / "wheel", CC="/bin/false")
    assert {name for name in without.namelist() if ".dist-info/" not in name} == sources()


def test_the_wheel_says_who_it_is(wheel: zipfile.ZipFile) -> None:
    """Name, version, licence with its text, and the commands."""
    texts = {name.split("/", 1)[1]: wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/" in name}
    assert "Name: skylarkmq\n" in texts["METADATA"]
    assert "Version: 0.1.0\n" in texts["METADATA"]
    assert "License-Expression: Apache-2.0\n" in texts["METADATA"]
    assert "Apache License" in texts["licenses/LICENSE"]
    assert "mqbroker = broker.cli:mqbroker" in texts["entry_points.txt"]
    assert "mqnamesrv = broker.cli:mqnamesrv" in texts["entry_points.txt"]
    assert "mqbench = clients.mqbench.commands:mqbench" in texts["entry_points.txt"]
    assert "mqspark-pipeline = clients.spark.pipeline:main" in texts["entry_points.txt"]


@pytest.mark.parametrize("name", ["pyspark_rocketmq", "pyspark_rocketmq_store"])
def test_spark_finds_the_sources_by_name(wheel: zipfile.ZipFile, name: str) -> None:
    """As files of top-level modules, in the wheel and in the editable installation that runs these tests."""
    assert "DefaultSource" in wheel.read(f"{name}.py").decode()
    assert name in {module.name for module in pkgutil.iter_modules()}


def test_the_changelog_speaks_of_this_version() -> None:
    """A version has its lines for users before it has a number."""
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """No dependency comes in by way of another, and none is dead weight; only the corner of Spark needs its extras."""
    everywhere = {path for path in modules() if path.split("/")[:2] != ["clients", "spark"]}
    assert used_by(everywhere - {PYTEST_PLUGIN}) == declared(PROJECT["dependencies"])
    extras = [line for name in ("spark", "avro") for line in PROJECT["optional-dependencies"][name]]
    with_extras = declared(PROJECT["dependencies"]) | declared(extras) - {PROJECT["name"]}
    assert used_by(modules() - {PYTEST_PLUGIN}) == with_extras


def modules() -> set[str]:
    return {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def used_by(paths: set[str]) -> set[str]:
    """The distributions whose modules these import."""
    imported = {
        name.split(".")[0]
        for path in paths
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        for name in imported_modules(node)
    }
    distributions = importlib.metadata.packages_distributions()
    foreign = imported - set(sys.stdlib_module_names) - set(PACKAGES) - COMPILE_TIME
    return {normal(distributions[module][0]) for module in foreign}


def declared(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=\[; ]", requirement)[0]) for requirement in requirements}


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
