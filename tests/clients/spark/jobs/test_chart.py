"""Plots of lines over time."""

from xml.etree import ElementTree

from skylarkmq.clients.spark.jobs.chart import MAX_LINES, Line, Panel, svg_of

SVG = "{http://www.w3.org/2000/svg}"


def test_all_lines_are_within_the_frame() -> None:
    """Valid XML; panels below each other, each with its own scale; values below zero count as zero."""
    lines = [Line(f"group <{n}>", [(1000.0 + at, float(at * n - 50)) for at in range(0, 100, 10)]) for n in range(3)]
    picture = ElementTree.fromstring(svg_of("lag & rate", [Panel("lag", lines), Panel("rate", lines[:1])]))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    drawn = [line.attrib["points"].split() for line in picture.findall(f"{SVG}polyline")]
    assert [len(points) for points in drawn] == [10] * 4
    positions = [tuple(map(float, point.split(","))) for points in drawn for point in points]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in positions)
    assert max(y for _, y in positions[:30]) < min(y for _, y in positions[30:])


def test_a_panel_has_at_most_so_many_lines_as_colors() -> None:
    """Callers sort the lines by importance; the rest is omitted."""
    lines = [Line(str(n), [(0.0, 1.0), (9.0, 2.0)]) for n in range(MAX_LINES + 3)]
    assert svg_of("x", [Panel("lag", lines)]).count("<polyline") == MAX_LINES


def test_without_points_only_axes_are_drawn() -> None:
    """No data is not an error."""
    picture = ElementTree.fromstring(svg_of("x", [Panel("lag", [])]))
    assert picture.findall(f"{SVG}polyline") == []
    ElementTree.fromstring(svg_of("x", []))


def test_times_of_several_days_have_dates() -> None:
    """The axis is UTC."""
    assert "01-01 00:00" in svg_of("x", [Panel("lag", [Line("a", [(0.0, 1.0), (200_000.0, 1.0)])])])
    assert "00:01:00" in svg_of("x", [Panel("lag", [Line("a", [(0.0, 1.0), (60.0, 1.0)])])])
