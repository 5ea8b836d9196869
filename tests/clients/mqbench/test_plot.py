"""Pictures of a run."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from skylarkmq.clients.mqbench.plot import NoPlot, save_plot, svg_of
from skylarkmq.clients.mqbench.recorder import Interval

TIMELINE = [
    Interval(at_s=0.25 * n, seconds=0.25, messages=1000 * n, p50_ns=10_000 * n, p99_ns=90_000 * n, max_ns=10**6 * n)
    for n in range(1, 9)
]


def test_the_picture_has_a_line_for_each_percentile_and_the_rate() -> None:
    """Valid XML; all points are within the frame."""
    picture = ElementTree.fromstring(svg_of("a <title> & more", TIMELINE))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert len(points) == len(TIMELINE)
        assert all(0 <= x <= 900 and 0 <= y <= 520 for x, y in points)


def test_the_suffix_selects_the_format(tmp_path: Path) -> None:
    """SVG here; another suffix, or no data, is an error."""
    save_plot(tmp_path / "x.svg", "x", TIMELINE)
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    with pytest.raises(NoPlot, match=r"\.svg or \.png"):
        save_plot(tmp_path / "x.pdf", "x", TIMELINE)
    with pytest.raises(NoPlot, match="nothing was measured"):
        save_plot(tmp_path / "x.svg", "x", [])


def test_a_png_is_drawn_by_matplotlib(tmp_path: Path) -> None:
    """With the extra `bench`, the picture is a PNG."""
    pytest.importorskip("matplotlib")
    save_plot(tmp_path / "x.png", "x", TIMELINE)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is `bench`."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NoPlot, match=r"skylarkmq\[bench\]"):
        save_plot(tmp_path / "x.png", "x", TIMELINE)
