"""Run a command with compiled modules that are built with AddressSanitizer, UBSan and bounds checks.

    python -m tests.fuzz.sanitized python -m pytest -q tests/protocol/compiled
    python -m tests.fuzz.sanitized python -m skylarkmq.broker
    python -m tests.fuzz.sanitized --build

The modules are built into build/sanitized if a source is newer than them: about a minute, or a third of it for slower
modules with CFLAGS=-O0. The ordinary build stays unchanged. Every Python process that the command starts loads them: a
`sitecustomize` on PYTHONPATH finds them before the ordinary ones. A finding is printed to stderr and ends the process
with exit code 1 (AddressSanitizer, UBSan).

Needs gcc with libasan and libubsan. Leaks are not reported, because the interpreter itself does not free all memory.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DIRECTORY: Final = ROOT / "build" / "sanitized"
SANITIZERS: Final = "address,undefined"
_SOURCES: Final = ROOT / "protocol" / "compiled"
_BUILT: Final = DIRECTORY / "lib" / "skylarkmq" / "protocol" / "compiled"
_SITE: Final = DIRECTORY / "site"
_STAMP: Final = DIRECTORY / "built"

_FINDER: Final = '''"""Compiled modules come from build/sanitized; see tests/fuzz/sanitized.py."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import spec_from_file_location
from pathlib import Path

PACKAGE = "skylarkmq.protocol.compiled."
BUILT = Path({built!r})


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        for suffix in EXTENSION_SUFFIXES if name.startswith(PACKAGE) else ():
            place = BUILT / (name.removeprefix(PACKAGE) + suffix)
            if place.exists():
                return spec_from_file_location(name, place)
        return None


sys.meta_path.insert(0, Finder)
'''


def can_build() -> bool:
    """Return whether a compiler, its sanitizers and Cython are installed."""
    try:
        import Cython  # noqa: F401, PLC0415 (the test is whether it can be imported)
    except ImportError:
        return False
    return shutil.which("gcc") is not None and all(Path(_library(name)).is_file() for name in ("asan", "ubsan"))


def build() -> None:
    """Build outdated modules. Raises CalledProcessError if a module does not compile."""
    sources = [path for path in (*_SOURCES.glob("*.py"), *_SOURCES.glob("*.pxd"), ROOT / "setup.py") if path.is_file()]
    newest = max(path.stat().st_mtime for path in sources)
    if _STAMP.is_file() and _STAMP.stat().st_mtime > newest:
        return
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    places = ("--build-lib", str(DIRECTORY / "lib"), "--build-temp", str(DIRECTORY / "temp"))
    command = (sys.executable, "setup.py", "-q", "build_ext", "--force", *places)
    variables = {"CFLAGS": "-O1"} | os.environ | {"SKYLARK_SANITIZE": SANITIZERS}
    subprocess.run(command, cwd=ROOT, env=variables, check=True)
    _SITE.mkdir(exist_ok=True)
    (_SITE / "sitecustomize.py").write_text(_FINDER.format(built=str(_BUILT)))
    _STAMP.touch()


def environment() -> dict[str, str]:
    """Return this environment, changed so that Python processes load the sanitized modules."""
    search = [str(_SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(search),
        "PYTHONMALLOC": "malloc",  # so that each object has its own bounds
        "LD_PRELOAD": _library("asan"),
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=1",
    }


def _library(name: str) -> str:
    """Return the path of a sanitizer's library; its bare name if the compiler has none."""
    command = ("gcc", f"-print-file-name=lib{name}.so")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Build the modules, then replace this process by the command."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    build()
    if arguments[0] != "--build":
        command = [sys.executable, *arguments[1:]] if arguments[0] == "python" else list(arguments)
        os.execvpe(command[0], command, environment())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
