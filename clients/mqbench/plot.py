"""Latency and throughput over the time of a run, as a picture: SVG without dependencies, PNG by matplotlib.

Two panels over one time axis: p50, p99 and the maximum latency in ms, on a logarithmic scale, and messages per second.
PNG needs the extra `bench`.
"""

from collections.abc import Sequence
from importlib import import_module
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, Final

from skylarkmq.clients.mqbench.recorder import Interval
from skylarkmq.clients.terminal.svg import Points, document, label, polyline, round_up, rule, title

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP = 70, 20, 40
LATENCY_HEIGHT: Final = 260
RATE_TOP: Final = 350
RATE_HEIGHT: Final = 120
LINES: Final = (("p50", "#1f77b4"), ("p99", "#ff7f0e"), ("max", "#d62728"))
RATE_COLOUR: Final = "#2ca02c"
LEAST_MS: Final = 0.001


class NoPlot(Exception):
    """The picture cannot be drawn."""


def save_plot(path: Path, heading: str, timeline: Sequence[Interval]) -> None:
    """Draw into a file, in the format of its suffix: .svg or .png. Raises NoPlot, OSError."""
    writers = {".svg": save_svg, ".png": save_png}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise NoPlot(f"a plot must be .svg or .png, not {path.name}")
    if not timeline:
        raise NoPlot("nothing was measured, so there is nothing to plot")
    writer(path, heading, timeline)


def save_svg(path: Path, heading: str, timeline: Sequence[Interval]) -> None:
    """Draw an SVG."""
    path.write_text(svg_of(heading, timeline), encoding="utf-8")


def save_png(path: Path, heading: str, timeline: Sequence[Interval]) -> None:
    """Draw a PNG. Raises NoPlot without matplotlib."""
    try:
        figures: Any = import_module("matplotlib.figure")
    except ImportError:
        raise NoPlot("a .png needs matplotlib: pip install 'skylarkmq[bench]'; an .svg needs nothing") from None
    figure = figures.Figure(figsize=(WIDTH / 100, HEIGHT / 100))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    times = [interval.at_s for interval in timeline]
    for name, colour in LINES:
        above.plot(times, [value for _, value in latency_line(name, timeline)], label=name, color=colour)
    above.set_yscale("log")
    above.set(title=heading, ylabel="latency, ms")
    above.legend()
    below.plot(times, [value for _, value in rate_line(timeline)], color=RATE_COLOUR)
    below.set(xlabel="seconds", ylabel="messages/s", ylim=(0, None))
    figure.savefig(path, dpi=100)


def latency_line(name: str, timeline: Sequence[Interval]) -> Points:
    """Return one of LINES, in milliseconds over seconds."""
    return [(interval.at_s, max(LEAST_MS, getattr(interval, f"{name}_ns") / 1e6)) for interval in timeline]


def rate_line(timeline: Sequence[Interval]) -> Points:
    """Return messages per second over seconds."""
    return [(interval.at_s, interval.messages / max(interval.seconds, 1e-9)) for interval in timeline]


def svg_of(heading: str, timeline: Sequence[Interval]) -> str:
    """Return the SVG text."""
    lines = {name: latency_line(name, timeline) for name, _ in LINES}
    values = [value for points in lines.values() for _, value in points]
    low, high = floor(log10(min(values))), max(ceil(log10(max(values))), floor(log10(min(values))) + 1)
    last_s = max(timeline[-1].at_s, 1e-3)
    rates = rate_line(timeline)
    most = round_up(max(value for _, value in rates))
    parts = [title(LEFT, 22, heading)]
    for power in range(low, high + 1):
        y = TOP + LATENCY_HEIGHT * (high - power) / (high - low)
        parts += [rule(LEFT, WIDTH - RIGHT, y), label(LEFT - 8, y + 4, f"{10.0**power:g} ms", "end")]
    for share in (0.0, 0.5, 1.0):
        y = RATE_TOP + RATE_HEIGHT * (1 - share)
        parts += [rule(LEFT, WIDTH - RIGHT, y), label(LEFT - 8, y + 4, f"{most * share:,.0f}", "end")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(label(LEFT + (WIDTH - LEFT - RIGHT) * share, HEIGHT - 28, f"{last_s * share:.3g} s", "middle"))
    for number, (name, colour) in enumerate(LINES):
        drawn = [
            (x_of(at_s, last_s), TOP + LATENCY_HEIGHT * (high - log10(ms)) / (high - low)) for at_s, ms in lines[name]
        ]
        parts += [polyline(drawn, colour), label(WIDTH - 160 + 50 * number, 22, name, "start", colour)]
    drawn = [(x_of(at_s, last_s), RATE_TOP + RATE_HEIGHT * (1 - rate / most)) for at_s, rate in rates]
    parts += [polyline(drawn, RATE_COLOUR), label(LEFT, RATE_TOP - 8, "messages/s", "start", RATE_COLOUR)]
    return document(WIDTH, HEIGHT, parts)


def x_of(at_s: float, last_s: float) -> float:
    """Return the x coordinate of a time."""
    return LEFT + (WIDTH - LEFT - RIGHT) * at_s / last_s
