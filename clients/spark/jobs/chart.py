"""Lines over time as SVG: panels one above the other with one time axis, each with its own scale from zero.

A panel draws at most MAX_LINES lines; callers choose the lines that matter.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.clients.terminal.svg import Points, document, label, polyline, round_up, rule, title

WIDTH: Final = 960
LEFT, RIGHT = 90, 240
TOP, PANEL_HEIGHT, GAP = 60, 200, 50
COLORS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")
MAX_LINES: Final = len(COLORS)
SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
DAY_S: Final = 86_400
NAME_CHARACTERS: Final = 32


class Line(msgspec.Struct, frozen=True):
    """A named line: (seconds since 1970, value), in the order of time. Values below zero are drawn as zero."""

    name: str
    points: Points


class Panel(msgspec.Struct, frozen=True):
    """Lines of one unit."""

    heading: str
    lines: Sequence[Line]


def save_svg(path: Path, heading: str, panels: Sequence[Panel]) -> None:
    """Write the plot to a file. Raises OSError."""
    path.write_text(svg_of(heading, panels), encoding="utf-8")


def svg_of(heading: str, panels: Sequence[Panel]) -> str:
    """Return the plot as SVG text. A panel without points has only its axes."""
    times = [at for panel in panels for line in panel.lines for at, _ in line.points]
    first, last = (min(times), max(times)) if times else (0.0, 0.0)
    span = max(last - first, 1.0)
    parts = [title(LEFT, 24, heading)]
    for number, panel in enumerate(panels):
        top = TOP + number * (PANEL_HEIGHT + GAP)
        parts += _drawn(panel, top, first, span)
    bottom = TOP + len(panels) * (PANEL_HEIGHT + GAP) - GAP
    pattern = "%m-%d %H:%M" if span > DAY_S else "%H:%M:%S"
    for share in SHARES if times else ():
        at = datetime.fromtimestamp(first + span * share, UTC)
        parts.append(label(LEFT + _width() * share, bottom + 18, f"{at:{pattern}}", "middle"))
    parts.append(label(WIDTH - 10, bottom + 18, "UTC", "end"))
    return document(WIDTH, bottom + 40, parts)


def _drawn(panel: Panel, top: float, first: float, span: float) -> list[str]:
    lines = panel.lines[:MAX_LINES]
    most = round_up(max((value for line in lines for _, value in line.points), default=1.0))
    parts = [label(LEFT, top - 10, panel.heading, "start")]
    for share in SHARES[::2]:
        y = top + PANEL_HEIGHT * (1 - share)
        parts += [rule(LEFT, LEFT + _width(), y), label(LEFT - 8, y + 4, f"{most * share:,.6g}", "end")]
    for number, (line, color) in enumerate(zip(lines, COLORS, strict=False)):
        points = [
            (LEFT + _width() * (at - first) / span, top + PANEL_HEIGHT * (1 - max(value, 0.0) / most))
            for at, value in line.points
        ]
        parts.append(polyline(points, color))
        parts.append(label(LEFT + _width() + 12, top + 12 + 18 * number, _shortened(line.name), "start", color))
    return parts


def _width() -> float:
    return WIDTH - LEFT - RIGHT


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"
