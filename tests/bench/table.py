"""The table of docs/benchmarks/broker.md: ours, interpreted and compiled, beside RocketMQ's, on this machine, now.

    python -m tests.bench.table                                  # all rows, 5 rounds, half an hour
    python -m tests.bench.table --runs 3                         # three times: the rounds of a row are spread out
    python -m tests.bench.table --quick                          # 2 short rounds, without 5.3.3: five minutes
    python -m tests.bench.table --row sync-16 --row sync-64      # the rows of some loads
    python -m tests.bench.table --write docs/benchmarks/broker.md      # also write the table into the document
    python -m tests.bench.table --awake --row single             # idle processors stay awake for all brokers

All brokers of a flush mode are running and alternate within each round; the others are stopped (SIGSTOP) meanwhile. The
Java brokers are warmed up for ten seconds, and no memory is left to the host (`peers/memory.py`). Each row states
whether its budget holds. If a load cannot be measured (a broker fails), that is printed, and the other loads continue.
Needs java and mvn for the official brokers, and 30 GB of disk.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from skylarkmq import ClientError
from skylarkmq.clients.mqbench.clusters import create_topics
from skylarkmq.clients.mqbench.runs import produce
from skylarkmq.clients.mqbench.workloads import Workload
from tests.bench.peers.awake import kept_awake
from tests.bench.peers.loads import LOADS, Bench, Length, Load, Measure
from tests.bench.peers.memory import Reserve, used_memory
from tests.bench.peers.rows import ROWS, Row, Samples
from tests.bench.peers.started import COMPILED, INTERPRETED, NEWER, OFFICIAL, OURS, Started, available, started

KINDS: Final = (INTERPRETED, COMPILED, OFFICIAL, NEWER)
QUICK_KINDS: Final = (INTERPRETED, COMPILED, OFFICIAL)
WARM_S: Final = {OFFICIAL: 10.0, NEWER: 10.0}
WARM_OURS_S: Final = 1.0
LET_GO_S: Final = 0.3  # broker/app/host/idle_states.py takes two tenths of a second
BEGIN: Final = "<!-- table: made by tests.bench.table -->"
END: Final = "<!-- end of the table -->"
HEADINGS: Final = (
    "figure (min / median / max)",
    "interpreted",
    "× 4.9.7",
    "budget",
    "compiled",
    "× 4.9.7",
    "budget",
    "RocketMQ 4.9.7",
    "RocketMQ 5.3.3",
)

FAILURES: Final = (AssertionError, ClientError, EOFError, OSError)

Taken = dict[str, dict[str, list[dict[str, float]]]]


def main() -> None:
    """Measure, print, and write the document if requested."""
    options = parse_arguments()
    kinds = available(options.kind or (QUICK_KINDS if options.quick else KINDS))
    names = [name for name in LOADS if not options.row or name in options.row]
    length = Length(options.seconds or (1.0 if options.quick else 3.0))
    rounds = options.rounds or (2 if options.quick else 5)
    begun = time.monotonic()
    with kept_awake(options.awake):
        runs = [measure_all(names, kinds, length, rounds, options.directory) for _ in range(options.runs)]
    text = table(combine(runs), options.row)
    rounds_text = f"{options.runs * rounds} rounds of {length.seconds:g} s"
    print(text)
    print(f"{time.monotonic() - begun:.0f} s, {rounds_text}")
    if options.write:
        write(options.write, f"{text}\n\n{circumstances(rounds_text)}")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two short rounds, without 5.3.3")
    parser.add_argument("--row", action="append", choices=tuple(LOADS), help="only this load; may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this broker; may be repeated")
    parser.add_argument("--runs", type=int, default=1, help="number of runs, each with its own brokers")
    parser.add_argument("--rounds", type=int, help="rounds per run")
    parser.add_argument("--seconds", type=float, help="length of a round")
    parser.add_argument("--directory", type=Path, help="directory of the stores")
    parser.add_argument("--awake", action="store_true", help="keep idle processors awake all the time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the document that holds the table")
    return parser.parse_args()


def measure_all(
    names: Sequence[str], kinds: Sequence[str], length: Length, rounds: int, directory: Path | None
) -> Taken:
    """Return the samples of each load, by load and kind."""
    taken: Taken = {}
    for flush in dict.fromkeys(LOADS[name].flush for name in names):
        home = Path(tempfile.mkdtemp(prefix="bench-table-", dir=directory))
        loads = {name: LOADS[name] for name in names if LOADS[name].flush == flush}
        try:
            with ExitStack() as stack:
                print_progress("filling the free memory")
                reserve = stack.enter_context(used_memory())
                brokers = [broker for kind in kinds if (broker := warmed(stack, kind, home, flush)) is not None]
                for name, load in loads.items():
                    print_progress(f"{flush} {name}")
                    taken[name] = measure_load(load, brokers, length, rounds, home, reserve)
        finally:
            shutil.rmtree(home)
    return taken


def combine(runs: Sequence[Taken]) -> Taken:
    """Combine the rounds of all runs.

    A broker that failed in one run is omitted from that row: ratios need pairs of rounds.
    """
    return {
        load: {
            kind: [sample for run in runs for sample in run[load][kind]]
            for kind in kinds
            if all(run[load].get(kind) for run in runs)
        }
        for load, kinds in runs[0].items()
    }


def warmed(stack: ExitStack, kind: str, home: Path, flush: str) -> Started | None:
    """Return a broker after some time under the load of most rows (a Java broker compiles itself meanwhile).

    Return None, and print the reason, if its kind is not available: no java, no mvn, no registry.
    """
    workload = Workload(topic="warm", seconds=WARM_S.get(kind, WARM_OURS_S), warmup_s=0.0)
    print_progress(f"warming {kind}")
    try:
        broker = stack.enter_context(started(kind, home, flush))
    except pytest.skip.Exception as reason:
        print_progress(f"{kind} omitted: {reason}")
        return None
    create_topics([broker.broker], workload)
    produce(workload, [broker.broker])
    return broker


def measure_load(
    load: Load, brokers: Sequence[Started], length: Length, rounds: int, home: Path, reserve: Reserve
) -> dict[str, list[dict[str, float]]]:
    """Run all rounds of one load; the order alternates. A broker that fails is omitted from then on."""
    compared = [broker for broker in brokers if not load.only_ours or broker.kind not in WARM_S]
    benches = {broker.kind: Bench(broker, length, home) for broker in compared}
    measures: dict[str, Measure] = {}
    samples: dict[str, list[dict[str, float]]] = {kind: [] for kind in benches}

    def ready(kind: str) -> None:
        measures[kind] = load.ready(benches[kind])

    def measure(kind: str) -> None:
        sample = measures[kind](benches[kind])
        print_progress(f"  {kind:14}" + "".join(f" {name}={value:,.2f}" for name, value in sample.items()))
        samples[kind].append(sample)

    steps = [ready, *[measure] * rounds]
    for number, step in enumerate(steps):
        order = list(benches)
        for kind in order if number % 2 == 0 else reversed(order):
            reserve.fill()
            try:
                with alone(kind, benches):
                    step(kind)
            except FAILURES as error:
                print_progress(f"  {kind} not measured: {type(error).__name__}: {error}")
                del benches[kind]
                samples[kind].clear()
    return samples


@contextmanager
def alone(kind: str, benches: Mapping[str, Bench]) -> Iterator[None]:
    """Stop the other brokers for a while, once none of them keeps the processors awake."""
    time.sleep(LET_GO_S)
    with ExitStack() as stack:
        for other, bench in benches.items():
            if other != kind:
                stack.enter_context(bench.broker.at_rest())
        yield


def print_progress(line: str) -> None:
    """Print progress to stderr."""
    print(line, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------ the document


def table(taken: Mapping[str, Samples], wanted: Sequence[str] | None) -> str:
    """Return the table in Markdown."""
    rows = [row for row in ROWS if row.load in taken and (not wanted or row.load in wanted)]
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    return "\n".join(lines + [line_of(row, taken[row.load]) for row in rows])


def line_of(row: Row, samples: Samples) -> str:
    """Return one line of the table."""
    cells = [f"{row.title}, {row.unit}" if row.unit else row.title]
    for kind in OURS:
        cells += [row.format_values(samples, kind), row.format_ratio(samples, kind), verdict(row, samples, kind)]
    cells += [row.format_values(samples, OFFICIAL), row.format_values(samples, NEWER)]
    return "| " + " | ".join(cells) + " |"


def verdict(row: Row, samples: Samples, kind: str) -> str:
    """Return whether the budget holds, and the budget."""
    holds = row.holds(samples, kind)
    if holds is None:
        return "not measured"
    return f"{'holds' if holds else '**missed**'}: {row.format_limit(kind)}"


def circumstances(rounds: str) -> str:
    """Return when, where and how the table was measured."""
    command = " ".join(["python -m tests.bench.table", *sys.argv[1:]])
    day = time.strftime("%Y-%m-%d")
    return f"Made by `{command}` on {day}: {rounds}. {machine()}"


def machine() -> str:
    """Return a short description of this machine."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    parts = [
        f"{os.cpu_count()} × {model}",
        f"{memory} GiB",
        f"Linux {platform.release()}",
        f"CPython {platform.python_version()}",
        java[0] if java else "no java",
    ]
    return ", ".join(parts) + "."


def write(path: Path, text: str) -> None:
    """Write the table between its marks in a document."""
    document = path.read_text()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
