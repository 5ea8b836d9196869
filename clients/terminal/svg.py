"""The shapes of plots as SVG text: labels, grid lines, polylines and the document around them. No dependencies."""

from collections.abc import Iterable
from html import escape
from math import ceil, floor, log10

Points = list[tuple[float, float]]


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """Return a whole SVG file with a white background; sizes are in pixels."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    background = f'<rect width="{width:g}" height="{height:g}" fill="white"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, background, *parts, "</svg>", ""])


def title(x: float, y: float, text: str) -> str:
    """Return a title that begins at x."""
    return f'<text x="{x:g}" y="{y:g}" font-size="15">{escape(text)}</text>'


def label(x: float, y: float, text: str, anchor: str, color: str = "#333") -> str:
    """Return a text label; `anchor` is start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def rule(left: float, right: float, y: float) -> str:
    """Return a horizontal grid line."""
    return f'<line x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'


def polyline(points: Points, color: str) -> str:
    """Return a line through the points."""
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.2"/>'


def round_up(value: float) -> float:
    """Return the next larger number with one significant digit, at least 1."""
    step = 10.0 ** floor(log10(max(value, 1.0)))
    return float(ceil(max(value, 1.0) / step) * step)
