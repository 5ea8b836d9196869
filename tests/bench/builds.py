"""Two builds of ours alternately under the loads of the table: the effect of a change, as ratios within each round.

    git worktree add ../before HEAD~5 && cd ../before && python3 -m venv .venv && .venv/bin/pip install '.[dev]'
    python -m tests.bench.builds ../before                            # all rows, compiled, 12 rounds of a second
    python -m tests.bench.builds ../before --row sends --interpreted  # one row, without compiled modules

Printed for each row and figure: the medians of both builds over the rounds, the median ratio of this build to the other
within a round, and the 95 % interval of that median (bootstrap). The result is "worse" or "better" if the whole
interval is beyond `--margin`, otherwise empty.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.bench.peers.loads import LOADS, Length, Sample
from tests.bench.peers.rows import ROWS, Row
from tests.bench.peers.started import COMPILED, INTERPRETED, MAKERS, add_build
from tests.bench.table import measure_all

THIS: Final = "this"
OTHER: Final = "other"
RESAMPLES: Final = 4_000
SAMPLED: Final = (("cpu_us", "broker CPU per message"), ("rate", "messages/s"), ("p50_us", "p50"))
"""Printed for every load that has them, in addition to the table's own rows."""


def main() -> int:
    """Run the command."""
    options = parse_arguments()
    variant = INTERPRETED if options.interpreted else COMPILED
    MAKERS[THIS] = MAKERS[variant]
    add_build(OTHER, options.checkout.resolve(), variant)
    names = [name for name in LOADS if not options.row or name in options.row]
    taken = measure_all(names, (THIS, OTHER), Length(options.seconds), options.rounds, options.directory)
    table = Table(title=f"{variant}, {options.rounds} rounds of {options.seconds:g} s, margin {options.margin:g} %")
    for heading in ("load", "figure", "other", "this", "this / other", "95 %", ""):
        table.add_column(heading, justify="left" if heading in ("load", "figure", "") else "right")
    for name in names:
        samples = taken[name]
        for figure, title, more_is_better in _figures(name, samples[THIS]):
            pairs = [(mine[figure], theirs[figure]) for mine, theirs in zip(samples[THIS], samples[OTHER], strict=True)]
            table.add_row(name, title, *_cells(pairs, options.margin / 100, more_is_better=more_is_better))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the other build, installed in its .venv")
    parser.add_argument("--interpreted", action="store_true", help="both builds without compiled modules")
    parser.add_argument("--row", action="append", choices=tuple(LOADS), help="only this load; may be repeated")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--margin", type=float, default=3.0, help="percent")
    parser.add_argument("--directory", type=Path, help="directory of the stores")
    return parser.parse_args()


def _figures(name: str, samples: Sequence[Sample]) -> list[tuple[str, str, bool]]:
    """Return figure, title, and whether higher is better."""
    rows: list[Row] = [row for row in ROWS if row.load == name]
    known = {row.figure: (row.figure, row.figure, row.more_is_better) for row in rows}
    for figure, title in SAMPLED:
        if samples and figure in samples[0]:
            known[figure] = (figure, title, figure == "rate")
    return list(known.values())


def _cells(pairs: Sequence[tuple[float, float]], margin: float, *, more_is_better: bool) -> tuple[str, ...]:
    if not pairs:
        return "-", "-", "-", "-", "not measured"
    ratios = [mine / theirs for mine, theirs in pairs if theirs]
    low, high = interval(ratios)
    costlier, cheaper = low > 1 + margin, high < 1 - margin
    better, worse = (costlier, cheaper) if more_is_better else (cheaper, costlier)
    verdict = "better" if better else "worse" if worse else ""
    medians = [median(side) for side in zip(*pairs, strict=True)]
    return f"{medians[1]:,.2f}", f"{medians[0]:,.2f}", f"{median(ratios):.3f}", f"{low:.3f}-{high:.3f}", verdict


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median of the ratios."""
    rng = Random(len(ratios))
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]


if __name__ == "__main__":
    sys.exit(main())
