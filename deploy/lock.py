"""Write the two lock files of the image: exact versions, with the SHA-256 hash of every wheel that may be installed.

    pip install '.[release]'
    python deploy/lock.py                      add what pyproject.toml needs; keep versions that still fit
    python deploy/lock.py --upgrade            move to the newest versions
    python deploy/lock.py -P numpy             move one package; more options: uv pip compile --help

requirements.lock holds what the broker needs, build.lock the build requirements of pyproject.toml. Both serve Linux
on x86_64 and aarch64 with Python 3.11 and newer. Only wheels are locked, so no install runs a package's setup code.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
PYPROJECT = DEPLOY.parent / "pyproject.toml"
OPTIONS = (
    "--universal", "--python-version=3.11", "--generate-hashes", "--only-binary=:all:", "--no-emit-index-url",
    "--custom-compile-command=python deploy/lock.py", "--quiet",
)  # fmt: skip


def compile_lock(lock: str, source: str, options: list[str], requirements: str = "") -> None:
    """Resolve `source` (a file, or - for the text in `requirements`) into the lock file with this name."""
    command = ["uv", "pip", "compile", *OPTIONS, *options, f"--output-file={DEPLOY / lock}", source]
    subprocess.run(command, cwd=PYPROJECT.parent, input=requirements, stdout=subprocess.DEVNULL, text=True, check=True)


def main(options: list[str]) -> None:
    build_requirements = tomllib.loads(PYPROJECT.read_text())["build-system"]["requires"]
    compile_lock("requirements.lock", PYPROJECT.name, ["--extra=broker", *options])
    compile_lock("build.lock", "-", options, "\n".join(build_requirements))


if __name__ == "__main__":
    main(sys.argv[1:])
