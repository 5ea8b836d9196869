"""Output for people: tables for a terminal, and the progress line of a running load."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from skylarkmq.clients.mqbench.compare import Ratio, Spread
from skylarkmq.clients.mqbench.recorder import Figures, Interval, OnInterval, ignore_interval, latencies
from skylarkmq.clients.mqbench.workloads import Workload

COUNTS: Final[dict[str, Callable[[Figures], str]]] = {
    "messages": lambda part: f"{part.messages:,}",
    "seconds": lambda part: f"{part.seconds:.2f}",
    "messages/s": lambda part: f"{part.rate:,.0f}",
    "MB/s": lambda part: f"{part.mb_per_s:,.1f}",
}


def figures_table(parts: dict[str, Figures]) -> Table:
    """Return a table with one column per part; latencies in milliseconds, and the ages of messages if measured."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in parts:
        table.add_column(name, justify="right")
    for heading, figure in COUNTS.items():
        table.add_row(heading, *map(figure, parts.values()))
    columns = [latencies(part.latency) for part in parts.values()]
    for name in columns[0]:
        table.add_row(f"{name} ms", *(f"{column[name] / 1000:.3f}" for column in columns))
    for part in parts.values():
        if part.end_to_end is not None:
            for name, value in latencies(part.end_to_end).items():
                table.add_row(f"end to end {name} ms", f"{value / 1000:.1f}")
    return table


def ratio_table(names: tuple[str, str], found: list[Ratio]) -> Table:
    """Return a table of both sides and the ratio, each as min / median / max."""
    table = Table(box=None, pad_edge=False, header_style="bold", caption="min / median / max over the rounds")
    table.add_column("")
    for heading in (*names, "second by first"):
        table.add_column(heading, justify="right", no_wrap=True)
    for ratio in found:
        table.add_row(ratio.figure, spread_text(ratio.first), spread_text(ratio.second), str(ratio.ratio))
    return table


def compared_json(workload: Workload, names: tuple[str, str], found: list[Ratio]) -> dict[str, Any]:
    """Return the ratios by figure."""
    sides = {"first": names[0], "second": names[1], "workload": msgspec.to_builtins(workload)}
    figures = {
        ratio.figure: {
            side: dict(zip(("min", "median", "max"), msgspec.structs.astuple(getattr(ratio, side)), strict=True))
            for side in ("first", "second", "ratio")
        }
        for ratio in found
    }
    return {"command": "compare"} | sides | {"figures": figures}


def spread_text(spread: Spread) -> str:
    """Return a spread of large numbers as text."""
    return " / ".join(f"{value:,.0f}" for value in msgspec.structs.astuple(spread))


@contextmanager
def progress(what: str) -> Iterator[OnInterval]:
    """Show a progress line on stderr, updated with each interval, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield ignore_interval
        return
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def show(interval: Interval) -> None:
            rate = interval.messages / max(interval.seconds, 1e-9)
            latency = f"p50 {interval.p50_ns / 1e6:.2f} ms  p99 {interval.p99_ns / 1e6:.2f} ms"
            live.update(Text(f"{what}  {interval.at_s:6.1f} s  {rate:10,.0f}/s  {latency}"), refresh=True)

        yield show
