"""A plot of rates as SVG. Colors come from the style sheet, so that both color schemes have enough contrast."""

from collections.abc import Sequence
from html import escape
from typing import Final

from skylarkmq.clients.terminal.svg import round_up

WIDTH: Final = 480
HEIGHT: Final = 140
LEFT: Final = 52
BOTTOM: Final = 20
TOP: Final = 10


def line_chart(chart_id: str, title: str, ages_s: Sequence[float], values: Sequence[float]) -> str:
    """Return a chart, which is safe HTML, of values by their age in seconds; the right edge is now."""
    top = round_up(max(values, default=1.0))
    oldest = max((*ages_s, 60.0))
    plot_width, plot_height = WIDTH - LEFT - 8, HEIGHT - TOP - BOTTOM
    points = " ".join(
        f"{LEFT + plot_width * (1 - age / oldest):.1f},{TOP + plot_height * (1 - value / top):.1f}"
        for age, value in zip(ages_s, values, strict=True)
    )
    latest = f"{values[-1]:,.1f} per second now" if values else "no sample yet"
    label = f"{escape(title)}: {latest}"
    rows = [
        f'<svg class="chart" id="{escape(chart_id)}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        *(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:,.10g}</text>'
            for mark, y in ((top, TOP), (top / 2, TOP + plot_height / 2), (0.0, TOP + plot_height))
        ),
        f'<text x="{LEFT}" y="{HEIGHT - 4}">{oldest:.0f} s ago</text>',
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">now</text>',
        f'<polyline class="line" points="{points}"/></svg>',
    ]
    return "".join(rows)
