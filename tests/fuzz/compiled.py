"""Fuzz the compiled modules under AddressSanitizer and UBSan, against their pure-Python versions.

    python -m tests.fuzz.compiled --module decode --seconds 600 --seed 1
    python -m tests.fuzz.compiled --module all --seconds 600 --seed 1 --results docs/benchmarks/fuzz.csv
    python -m tests.fuzz.compiled --module decode --seed 1 --first 4711 --count 1      one execution again

Execution n of a module and seed has the same input every time, on every machine. A run ends after its seconds, after
`--count` executions, or at the first finding: an assertion, an exception or a sanitizer's report, printed with the
number of its execution. Exit code 0: nothing found, 1: a finding. `--plain` fuzzes the ordinary build instead.

Each run of a module appends one line to the file of `--results`:

    date, build, module, seed, first, executions, seconds, finding      finding: none, or the number of the execution
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path
from random import Random
from typing import Final

from skylarkmq.protocol import compiled
from tests.fuzz import sanitized
from tests.harness import results

COLUMNS: Final = ("date", "build", "module", "seed", "first", "executions", "seconds", "finding")
_UNLIMITED: Final = 1 << 62
_NUMBER_BYTES: Final = 8


def run(module: str, seed: int, first: int, count: int, seconds: float, at: "mmap | bytearray") -> None:
    """Run executions from `first` on; write the number of the current one to `at`. An AssertionError or any other
    exception of an execution is a finding."""
    from tests.fuzz.cases import FUZZERS  # noqa: PLC0415 (they load the modules, which the outer process does not)

    fuzzer, deadline = FUZZERS[module], time.monotonic() + seconds
    for number in range(first, first + count):
        at[:_NUMBER_BYTES] = number.to_bytes(_NUMBER_BYTES, "little")
        if time.monotonic() >= deadline:
            return
        fuzzer(Random(f"{module}/{seed}/{number}"))
    at[:_NUMBER_BYTES] = (first + count).to_bytes(_NUMBER_BYTES, "little")


def _run_here(arguments: argparse.Namespace) -> int:
    """Run the executions in this process, with their number in the file that the outer process reads."""
    with open(arguments.progress, "r+b") as file, mmap(file.fileno(), _NUMBER_BYTES) as at:
        try:
            run(arguments.module, arguments.seed, arguments.first, arguments.count, arguments.seconds, at)
        except Exception:  # noqa: BLE001 (any exception is a finding and is printed)
            traceback.print_exc()
            return 1
    return 0


def _run_module(arguments: argparse.Namespace, module: str) -> bool:
    """Run one module in its own process; return whether there was no finding."""
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(arguments.first.to_bytes(_NUMBER_BYTES, "little"))
        progress.flush()
        options = {name: getattr(arguments, name) for name in ("seed", "first", "count", "seconds")}
        command = [sys.executable, "-m", "tests.fuzz.compiled", "--module", module, "--progress", progress.name]
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        begun = time.monotonic()
        environment = dict(os.environ) if arguments.plain else sanitized.environment()
        code = subprocess.run(command, env=environment, cwd=sanitized.ROOT, check=False).returncode
        seconds = time.monotonic() - begun
        reached = int.from_bytes(Path(progress.name).read_bytes(), "little")
    finding = str(reached) if code else "none"
    executions = reached - arguments.first + bool(code)
    print(f"{module}: {executions} executions in {seconds:.0f} s, finding: {finding}", flush=True)
    if arguments.results is not None:
        build = "ordinary" if arguments.plain else sanitized.SANITIZERS.replace(",", "+")
        row = results.today(), build, module, arguments.seed, arguments.first, executions, round(seconds)
        results.append(arguments.results, COLUMNS, (*row, finding))
    return code == 0


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", choices=(*compiled.MODULES, "all"), required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=_UNLIMITED, help="of each module")
    parser.add_argument("--first", type=int, default=0, help="number of the first execution")
    parser.add_argument("--count", type=int, default=_UNLIMITED, help="most executions of each module")
    parser.add_argument("--results", type=Path, help="a CSV file to append the results to")
    parser.add_argument("--plain", action="store_true", help="fuzz the ordinary build")
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.seconds == arguments.count == _UNLIMITED:
        parser.error("--seconds or --count is needed")
    if arguments.progress is not None:
        return _run_here(arguments)
    if not arguments.plain:
        sanitized.build()
    modules = compiled.MODULES if arguments.module == "all" else (arguments.module,)
    clean = [_run_module(arguments, module) for module in modules]  # all of them, whatever one finds
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
