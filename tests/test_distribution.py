"""The distribution: the wheel's content and metadata, and dependencies that match the imports."""

import ast
import importlib.metadata
import os
import pkgutil
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from skylarkmq.protocol import compiled

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = "skylarkmq"
PARTS = ("protocol", "broker", "clients")
"""The parts of the package. Each is a top-level folder; src/skylarkmq contains a symbolic link to it."""

CONSOLE = ROOT / "clients" / "console"
COMPILE_TIME = {"cython"}  # imported by the sources of compiled modules, but not at run time
pytestmark = pytest.mark.packaging

QUICK_BUILD = {"CFLAGS": "-O0"}  # a third of the time; what the compiled modules do is no matter here
MANYLINUX = f"manylinux_2_28_{platform.machine()}"
C_FILES = "build/modules"
SRC = "src"  # the package and the modules beside it


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which `wheel` is built."""
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel, built from a copy of its sources, without a network."""
    return built_wheel(source, tmp_path_factory.mktemp("wheel"), MANYLINUX)


def built_wheel(source: Path, target: Path, for_platform: str | None = None, **environment: str) -> zipfile.ZipFile:
    """Return the wheel that pip builds from a copy of the sources. `for_platform` is the tag for compiled modules."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", SRC, *PARTS):
        (source / name).symlink_to(ROOT / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source)]
    options += [f"--config-settings=--build-option=--plat-name={for_platform}"] if for_platform else []
    subprocess.run(
        [*pip, *options], check=True, capture_output=True, text=True, env=os.environ | QUICK_BUILD | environment
    )
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def sources() -> set[str]:
    """Return every module of this project, by its path in the wheel."""
    files = [path for part in (SRC, *PARTS) for path in (ROOT / part).rglob("*") if not path.is_dir()]
    return {path_in_wheel(path) for path in files if path.suffix in {".py", ".pyi", ".pxd"} or is_data(path)}


def is_data(path: Path) -> bool:
    """Return whether a file is part of the wheel although it is no module."""
    return path.name == "py.typed" or path.parent in {CONSOLE / "templates", CONSOLE / "static"}


def path_in_wheel(path: Path) -> str:
    """Return the path of a file in the wheel."""
    name = str(path.relative_to(ROOT))
    return name.removeprefix(f"{SRC}/") if name.startswith(f"{SRC}/") else f"{PACKAGE}/{name}"


def test_the_wheel_contains_exactly_the_modules(wheel: zipfile.ZipFile) -> None:
    """One package with all its parts, its type marker and the compiled modules; no tests."""
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    built = {name for name in shipped if name.endswith(".so")}
    assert shipped - built == sources()
    assert {name.split(".")[0] for name in built} <= {
        f"{PACKAGE}/protocol/compiled/{module}" for module in compiled.MODULES
    }
    assert f"{PACKAGE}/py.typed" in shipped


def test_a_source_install_without_a_compiler_leaves_out_the_compiled_modules(
    wheel: zipfile.ZipFile, source: Path, tmp_path: Path
) -> None:
    """Modules that cannot be compiled are left out, and the build succeeds."""
    shutil.copytree(source / C_FILES, tmp_path / C_FILES)  # those of the other build, which took Cython seconds
    without = built_wheel(tmp_path, tmp_path / "wheel", CC="/bin/false")
    assert {name for name in without.namelist() if ".dist-info/" not in name} == sources()


def test_the_pure_wheel_fits_every_platform(tmp_path: Path) -> None:
    """The fallback of a release has the tag py3-none-any and no compiled module."""
    pure = built_wheel(tmp_path, tmp_path / "wheel", SKYLARK_PURE="1")
    assert str(pure.filename).endswith("-py3-none-any.whl")
    assert {name for name in pure.namelist() if ".dist-info/" not in name} == sources()


def test_a_manylinux_wheel_installs_the_compiled_modules_without_a_compiler(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """pip installs the wheel without a compiler, and every compiled module is used."""
    assert str(wheel.filename).endswith(f"-{MANYLINUX}.whl")
    python = environment_with_dependencies(tmp_path / "venv", with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    environment = os.environ | {"CC": "/bin/false", "CXX": "/bin/false"}
    environment.pop("PYTHONPATH", None)
    environment.pop("SKYLARK_COMPILED", None)
    subprocess.run([*pip, str(wheel.filename)], check=True, capture_output=True, text=True, env=environment)
    program = "from skylarkmq.protocol import compiled; print(compiled.__path__[0], compiled.variant())"
    command = [str(python), "-c", program]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=True)
    directory, variant = run.stdout.split(maxsplit=1)
    assert Path(directory).is_relative_to(tmp_path)
    assert variant == "compiled\n"


def test_the_wheel_has_complete_metadata(wheel: zipfile.ZipFile) -> None:
    """Name, version, license with its text, and the commands."""
    texts = {name.split("/", 1)[1]: wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/" in name}
    assert "Name: skylarkmq\n" in texts["METADATA"]
    assert "Version: 0.1.0\n" in texts["METADATA"]
    assert "License-Expression: Apache-2.0\n" in texts["METADATA"]
    assert "Apache License" in texts["licenses/LICENSE"]
    for name in PROJECT["scripts"]:
        assert f"{name} = skylarkmq.commands:{name.replace('-', '_')}\n" in texts["entry_points.txt"] + "\n"


@pytest.mark.parametrize("name", ["pyspark_rocketmq", "pyspark_rocketmq_store"])
def test_spark_finds_the_sources_by_name(wheel: zipfile.ZipFile, name: str) -> None:
    """The sources are top-level modules, in the wheel and in the editable installation that runs these tests."""
    assert "DefaultSource" in wheel.read(f"{name}.py").decode()
    assert name in {module.name for module in pkgutil.iter_modules()}


OWN_PROJECT = {
    "broker/__init__.py": "KIND = 'mine'\n",
    "clients/__init__.py": "KIND = 'mine'\n",
    "protocol/__init__.py": "KIND = 'mine'\n",
    "tests/__init__.py": "",
    "tests/test_mine.py": """
from collections.abc import Iterator
from typing import Any

import pytest

import broker
import clients
import protocol
from skylarkmq import Message, MessageExt, Producer, blocking


@pytest.fixture
def sender(mq_broker: Any) -> Iterator[blocking.Producer]:
    with blocking.Producer("p", namesrv=mq_broker.namesrv) as producer:
        yield producer


def test_mine(sender: blocking.Producer) -> None:
    assert [broker.KIND, clients.KIND, protocol.KIND] == ["mine"] * 3
    assert sender.send(Message("T", b"x")).queue.topic == "T"


async def sent(producer: Producer, message: MessageExt) -> int:
    result = await producer.send(Message(message.topic, message.body))
    return result.queue_offset
""",
}


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with Skylark and its dependencies: from the wheel, or the one that runs these tests."""
    if request.param == "editable":
        return Path(sys.executable)
    wheel = request.getfixturevalue("wheel")
    python = environment_with_dependencies(tmp_path_factory.mktemp("environment"))
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel.filename) as archive:
        archive.extractall(site)
    return python


def environment_with_dependencies(home: Path, *, with_pip: bool = False) -> Path:
    """Return the interpreter of a new virtual environment that sees the packages of this one, but not Skylark."""
    venv.create(home, symlinks=True, with_pip=with_pip)
    (site,) = home.glob("lib/python*/site-packages")
    # Python ignores .pth files in directories that a .pth file adds, so the editable installation is not visible.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


def test_a_project_may_have_packages_with_the_same_names(installed: Path, tmp_path: Path) -> None:
    """A project with packages broker, clients and protocol imports its own, and can use the fixture and the types.
    `pytest` is started with and without the project's directory in `sys.path`."""
    for name, text in OWN_PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["-m", "pytest"], ["-c", "import sys, pytest; sys.path.pop(0); pytest.main()"]):
        run = subprocess.run([installed, *command, "-q"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "1 passed" in run.stdout, run.stdout + run.stderr
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed), "."]
    typed = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert typed.returncode == 0, typed.stdout


def test_the_changelog_has_a_section_for_this_version() -> None:
    """The changelog has a section for the version in pyproject.toml."""
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_declared_dependencies_are_the_imported_ones() -> None:
    """Declared dependencies are exactly the imported ones, for the SDK and for each extra."""
    sdk = reachable("skylarkmq.clients.sdk") | reachable("skylarkmq.blocking") | reachable("skylarkmq.commands")
    assert used_by(sdk) == declared(PROJECT["dependencies"])
    for extra, folders in PARTS_OF_EXTRAS.items():
        paths = {path for path in modules() if path.startswith(folders)}
        assert used_by(paths) - used_by(sdk) == extras(*extra.split(",")) - used_by(sdk) - LOADED_BY_NAME, extra


LOADED_BY_NAME = {"matplotlib", "pandas"}  # only if the output is a .png file; PySpark's mapInArrow requires it
PARTS_OF_EXTRAS = {
    "admin": ("clients/console/", "clients/mqadmin/"),
    "broker": ("broker/", "clients/console/", "protocol/"),
    "metrics": ("clients/sdk/telemetry/",),
    "arrow": ("clients/arrow/",),
    "avro,iceberg,protobuf,replay": ("clients/arrow/", "clients/spark/"),
    "bench": ("clients/mqbench/",),
}


def extras(*names: str) -> set[str]:
    """Return the distributions of these extras and of the extras that they include."""
    lines = [line for name in names for line in PROJECT["optional-dependencies"][name]]
    nested = {inner for line in lines for inner in re.findall(r"^skylarkmq\[(.*)\]$", line)}
    own = declared([line for line in lines if not line.startswith("skylarkmq[")])
    return own | (extras(*nested) if nested else set())


def reachable(name: str) -> set[str]:
    """Return the files of this project's modules that importing `name` loads."""
    found: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        path = file_of(module)
        if path is None or module in found:
            continue
        found[module] = path
        waiting += [imported for node in ast.walk(ast.parse(path.read_text())) for imported in names_in(node)]
    return {str(path.relative_to(ROOT)) for path in found.values()}


def names_in(node: ast.AST) -> list[str]:
    """Return names that may be modules: `from a import b` has `a` and `a.b`."""
    modules = imported_modules(node)
    inner = [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
    return modules + inner


def file_of(module: str) -> Path | None:
    """Return the source of a module of this project, or None."""
    directory = ROOT / SRC / module.replace(".", "/")
    for path in (directory.with_suffix(".py"), directory / "__init__.py"):
        if path.is_file() and module.split(".", maxsplit=1)[0] == PACKAGE:
            return ROOT / resolved_path(path)
    return None


def resolved_path(path: Path) -> Path:
    """Return the path that a link below src refers to."""
    return path.resolve().relative_to(ROOT)


def modules() -> set[str]:
    return {str(path.relative_to(ROOT)) for part in (SRC, *PARTS) for path in (ROOT / part).rglob("*.py")}


def used_by(paths: set[str]) -> set[str]:
    """Return the distributions that the modules import."""
    imported = {
        name.split(".")[0]
        for path in paths
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        for name in imported_modules(node)
    }
    foreign = imported - set(sys.stdlib_module_names) - {PACKAGE} - COMPILE_TIME
    return {normalized(distributions()[module][0]) for module in foreign}


@cache
def distributions() -> Mapping[str, list[str]]:
    """Return the distributions of each top-level module. Reading the metadata of all of them takes seconds."""
    return importlib.metadata.packages_distributions()


def declared(requirements: list[str]) -> set[str]:
    return {normalized(re.split(r"[<>=\[; ]", requirement)[0]) for requirement in requirements}


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
