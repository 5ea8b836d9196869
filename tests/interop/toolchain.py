"""The official clients, fetched from their registries and built once, in a cache directory.

Each product has a directory in build/interop (not in git), with a stamp: a digest of its sources and recipe. A product
with a current stamp is not built again. Sources are copied there before the build, so that nothing is built inside the
tree. A missing tool or an unreachable registry skips the test with the reason (a failure in CI). An error of a compiler
is a failure.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CACHE = ROOT / "build" / "interop"

PIP_PACKAGE = "rocketmq==0.4.4"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

built_in_seconds: dict[str, float] = {}  # build times of this session, for the terminal summary


def cpp_driver() -> Path:
    """Return a virtual environment with the wheel of the C++ client; it contains bin/python and driver.py."""

    def recipe(target: Path) -> None:
        run([sys.executable, "-m", "venv", target])
        fetch([target / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", PIP_PACKAGE])

    return product("cpp", HERE / "clients" / "cpp", recipe, tools=(), recipe_id=f"{PIP_PACKAGE} {sys.version}")


def node_driver() -> Path:
    """Return a directory with driver.js and its node_modules."""

    def recipe(target: Path) -> None:
        fetch(["npm", "ci", "--silent"], cwd=target)

    return product("node", HERE / "clients" / "node", recipe, tools=("node", "npm"))


def go_driver() -> Path:
    """Return a directory with the executable `driver`."""

    def recipe(target: Path) -> None:
        fetch(["go", "mod", "download"], cwd=target)
        run(["go", "build", "-o", "driver", "."], cwd=target)

    return product("go", HERE / "clients" / "go", recipe, tools=("go",))


def java_driver(version: str) -> Path:
    """Return a directory with classes/ and lib/ for one version of the Java client."""

    def recipe(target: Path) -> None:
        copy_jars(target, version)
        run(["javac", "-cp", "lib/*", "-d", "classes", "Driver.java"], cwd=target)

    tools = ("mvn", "java", "javac")
    return product(f"java-{version}", HERE / "clients" / "java", recipe, tools=tools, recipe_id=version)


def apache_broker(version: str) -> Path:
    """Return a directory with lib/, the jars of RocketMQ's own broker and name server."""
    return product(
        f"apache-{version}",
        HERE / "apache",
        lambda target: copy_jars(target, version),
        tools=("mvn", "java"),
        recipe_id=version,
    )


def mqadmin(version: str) -> Path:
    """Return a directory with classes/ and lib/ for one version of RocketMQ's tools."""

    def recipe(target: Path) -> None:
        copy_jars(target, version)
        run(["javac", "-Xlint:-removal", "-cp", "lib/*", "-d", "classes", "Admin.java"], cwd=target)

    tools = ("mvn", "java", "javac")
    return product(f"mqadmin-{version}", HERE / "mqadmin", recipe, tools=tools, recipe_id=version)


def promtool() -> Path:
    """Return promtool: the installed one, or one extracted from Debian's package without installing it."""
    installed = shutil.which("promtool")
    if installed is not None:
        return Path(installed)

    def recipe(target: Path) -> None:
        fetch(["apt-get", "download", "--quiet", (target / "package").read_text().strip()], cwd=target)
        (archive,) = target.glob("*.deb")
        run(["dpkg-deb", "--extract", archive, target])
        archive.unlink()

    return (
        product("prometheus", HERE / "prometheus", recipe, tools=("apt-get", "dpkg-deb")) / "usr" / "bin" / "promtool"
    )


def copy_jars(target: Path, version: str) -> None:
    options = ["-DincludeScope=runtime", "-DoutputDirectory=lib", f"-Drocketmq.version={version}"]
    fetch(["mvn", "--batch-mode", "--quiet", COPY_DEPENDENCIES, *options], cwd=target)


def product(
    name: str, sources: Path, recipe: Callable[[Path], None], *, tools: tuple[str, ...], recipe_id: str = ""
) -> Path:
    """Return the directory of a product. Builds it from a copy of `sources` unless its stamp is current."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{name}: {tool} is not installed")
    target = CACHE / name
    stamp = target / "stamp"
    digest = digest_of(sources, recipe_id)
    with exclusive(name):
        if not stamp.exists() or stamp.read_text() != digest:
            begun = time.monotonic()
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(sources, target, ignore=shutil.ignore_patterns("__pycache__"))
            recipe(target)
            stamp.write_text(digest)
            built_in_seconds[name] = time.monotonic() - begun
    return target


def digest_of(sources: Path, recipe_id: str) -> str:
    digest = hashlib.sha256(recipe_id.encode())
    digest.update(Path(__file__).read_bytes())
    for path in sorted(path for path in sources.iterdir() if path.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold a lock, so that concurrent sessions build one after the other."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch(command: list[str | Path], cwd: Path = ROOT) -> None:
    """Run a command that needs a registry; skip the test if it fails."""
    try:
        run(command, cwd)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{' '.join(map(str, command[:3]))} failed: {error.output[-500:]}")


def run(command: list[str | Path], cwd: Path = ROOT) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
