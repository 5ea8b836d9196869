"""CPU time of `import skylarkmq` with all public names, in a new process with cached bytecode.

    python -m tests.bench.bench_import
    python -m tests.bench.bench_import --rounds 40 --json

Each round starts two processes: one imports the SDK, one imports asyncio and ssl alone, which most programs that use
the SDK import anyway. Budget: the minimum of the first is at most 120 ms on the machine of docs/benchmarks/broker.md.
Whether the import loads only the SDK's dependencies is a test (tests/clients/test_platforms.py).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median

MEASURED = "import time; begun_ns = time.process_time_ns(); {}; print((time.process_time_ns() - begun_ns) / 1e6)"
IMPORTS = {
    "skylarkmq": MEASURED.format("import skylarkmq; [getattr(skylarkmq, name) for name in skylarkmq.__all__]"),
    "asyncio and ssl": MEASURED.format("import asyncio, ssl"),
}


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    options = parser.parse_args()
    cpu_ms: dict[str, list[float]] = {name: [] for name in IMPORTS}
    with tempfile.TemporaryDirectory(prefix="bench-import-") as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(options.rounds + 1):
            for name, program in IMPORTS.items():
                command = [sys.executable, "-c", program]
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                if number:  # the first round writes the cached bytecode
                    cpu_ms[name].append(float(done.stdout))
    figures = {name: {"min_ms": min(spent), "median_ms": median(spent)} for name, spent in cpu_ms.items()}
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:16} min {figure['min_ms']:6.1f} ms   median {figure['median_ms']:6.1f} ms")


if __name__ == "__main__":
    main()
