"""Charts are well-formed and deterministic, and their marks are at the values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from xml.etree import ElementTree as ET

import pytest
from bench.load.chart import Series, bars, dots, lines

OURS = Series("Tarn", "tarn", {"a": 1.0, "b <&> b": 4.0})
THEIRS = Series("peer", "peer", {"a": 100.0}, hollow=True)
SVG = "{http://www.w3.org/2000/svg}"


def marks(text: str, kind: str, css: str) -> list[dict[str, str]]:
    """Returns the attributes of the elements of a kind and class, without the legend."""
    root = ET.fromstring(text)
    found = [element.attrib for element in root.iter(SVG + kind)]
    return [a for a in found if a.get("class") == css and a.get("cy") != "40"]


@pytest.mark.parametrize(
    "draw",
    [
        partial(bars, "t", ["a", "b <&> b"], [OURS, THEIRS], "/s"),
        partial(dots, "t", ["a", "b <&> b"], [OURS, THEIRS], " ms"),
        partial(lines, "t", ["a", "b <&> b"], [OURS, THEIRS], "connections"),
    ],
)
def test_a_chart_is_xml_the_same_each_time_and_has_dark_colours(draw: Callable[[], str]) -> None:
    text = draw()
    assert text == draw()
    words = [element.text for element in ET.fromstring(text).iter(SVG + "text")]
    assert {"t", "Tarn", "peer", "b <&> b"} <= set(words)
    assert "prefers-color-scheme:dark" in text


def test_bars_are_as_long_as_their_values() -> None:
    text = bars("t", ["a", "b <&> b"], [OURS, THEIRS], "/s")
    widths = [float(bar["width"]) for bar in marks(text, "rect", "tarn")]
    (longest,) = (float(bar["width"]) for bar in marks(text, "rect", "peer hollow"))
    assert widths == pytest.approx([longest / 100, longest / 25], abs=0.06)


def test_dots_are_at_their_logarithms_and_missing_values_have_none() -> None:
    text = dots("t", ["a", "b <&> b"], [OURS, THEIRS], " ms")
    first, second = (float(dot["cx"]) for dot in marks(text, "circle", "tarn"))
    (far,) = (float(dot["cx"]) for dot in marks(text, "circle", "peer hollow"))
    assert (second - first) / (far - first) == pytest.approx(0.301, abs=0.01)  # log 4 of log 100


def test_lines_start_at_zero_and_have_a_point_for_each_value() -> None:
    text = lines("t", ["a", "b <&> b"], [Series("x", "tarn", {"a": 0.0, "b <&> b": 10.0})], "n")
    low, high = (float(dot["cy"]) for dot in marks(text, "circle", "tarn"))
    ticks = list(ET.fromstring(text).iter(SVG + "text"))
    zero = next(float(tick.attrib["y"]) for tick in ticks if tick.text == "0")
    ten = next(float(tick.attrib["y"]) for tick in ticks if tick.text == "10")
    assert (low, high) == (zero - 4, ten - 4)
