"""Charts as SVG text: rows of bars, rows of dots on a logarithmic axis, lines.

Tarn writes them itself because a chart has only some forty elements. The text is the same on every
machine (a new figure changes a few lines of it), and one file works on light and dark pages, which the
usual plotting libraries do not offer (docs/design/dependencies.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Series", "bars", "dots", "lines"]

_WIDTH, _LEFT, _RIGHT, _TOP = 760, 262, 84, 62
_SPAN = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT = 260  # of lines
# Hues that colour-blind people can distinguish; the second set is for dark pages.
_LIGHT = {"tarn": "#1f6feb", "second": "#0f8a7e", "third": "#8250df", "peer": "#d4740c"}
_DARK = {"tarn": "#6cb0ff", "second": "#4cc9b8", "third": "#c297ff", "peer": "#f0a04b"}


@dataclass(frozen=True, slots=True)
class Series:
    """The data of one colour.

    Attributes:
        name: name in the legend.
        hue: `tarn`, `second`, `third` or `peer`.
        values: values by row or by place on the axis; unmeasured ones are missing.
        hollow: drawn as an outline, to distinguish two series of one hue.
    """

    name: str
    hue: str
    values: Mapping[str, float]
    hollow: bool = False

    @property
    def css(self) -> str:
        return f"{self.hue} hollow" if self.hollow else self.hue


def bars(title: str, rows: Sequence[str], series: Sequence[Series], unit: str) -> str:
    """Draws horizontal bars from zero, a group for each row; values with `unit` are written at their ends."""
    most = max(value for one in series for value in one.values.values())
    body, y = [], _TOP
    for row in rows:
        found = [one for one in series if row in one.values]
        body.append(_text(_LEFT - 10, y + 7 * len(found) + 4, row, "end"))
        for one in found:
            value = one.values[row]
            wide = _SPAN * value / most
            body.append(
                f'<rect class="{one.css}" x="{_LEFT}" y="{y}" width="{wide:.1f}" height="11"/>'
            )
            body.append(_text(_LEFT + wide + 6, y + 10, _number(value) + unit, css="small"))
            y += 14
        y += 12
    body.append(f'<path class="axis" d="M{_LEFT} {_TOP - 6}V{y - 6}"/>')
    return _page(title, series, body, y)


def dots(title: str, rows: Sequence[str], series: Sequence[Series], unit: str) -> str:
    """Draws a line per row with a dot per series, on a logarithmic axis of whole powers of ten."""
    values = [value for one in series for value in one.values.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    bottom = _TOP + 28 * len(rows)

    def x(value: float) -> float:
        return _LEFT + _SPAN * (math.log10(value) - low) / (high - low)

    body = []
    for power in range(low, high + 1):
        at = x(10**power)
        body.append(f'<path class="grid" d="M{at:.1f} {_TOP - 6}V{bottom}"/>')
        body.append(_text(at, bottom + 16, _number(10**power) + unit, "middle", "small"))
    for number, row in enumerate(rows):
        y = _TOP + 28 * number + 10
        found = [(one, one.values[row]) for one in series if row in one.values]
        ends = sorted(x(value) for _, value in found)
        body.append(_text(_LEFT - 10, y + 4, row, "end"))
        body.append(f'<path class="axis" d="M{ends[0]:.1f} {y}H{ends[-1]:.1f}"/>')
        for one, value in found:
            body.append(f'<circle class="{one.css}" cx="{x(value):.1f}" cy="{y}" r="5.5"/>')
    return _page(title, series, body, bottom + 24)


def lines(title: str, places: Sequence[str], series: Sequence[Series], axis: str) -> str:
    """Draws a line per series over equidistant places, from zero; `axis` names the places."""
    step = _nice(max(value for one in series for value in one.values.values()) / 5)
    most = step * math.ceil(max(v for one in series for v in one.values.values()) / step)
    left, bottom = 70, _TOP + _PLOT_HEIGHT
    apart = (_WIDTH - left - 40) / max(1, len(places) - 1)

    def y(value: float) -> float:
        return bottom - _PLOT_HEIGHT * value / most

    body = []
    for number in range(round(most / step) + 1):
        at = y(step * number)
        body.append(f'<path class="grid" d="M{left} {at:.1f}H{_WIDTH - 40}"/>')
        body.append(_text(left - 8, at + 4, _number(step * number), "end", "small"))
    for number, place in enumerate(places):
        body.append(_text(left + apart * number, bottom + 18, place, "middle", "small"))
    body.append(_text((left + _WIDTH - 40) / 2, bottom + 38, axis, "middle", "small"))
    for one in series:
        points = [
            (left + apart * number, y(one.values[place]))
            for number, place in enumerate(places)
            if place in one.values
        ]
        drawn = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        body.append(f'<polyline class="line {one.css}" points="{drawn}"/>')
        body += [
            f'<circle class="{one.css}" cx="{px:.1f}" cy="{py:.1f}" r="4"/>' for px, py in points
        ]
    return _page(title, series, body, bottom + 48)


def _page(title: str, series: Sequence[Series], body: Sequence[str], height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}" role="img">'
    )
    parts = [head, f"<title>{escape(title)}</title>", *_style(), _text(12, 22, title, css="title")]
    x = 12.0
    for one in series:
        parts.append(f'<circle class="{one.css}" cx="{x + 6:.0f}" cy="40" r="5"/>')
        parts.append(_text(x + 16, 44, one.name, css="small"))
        x += 34 + 6.6 * len(one.name)
    return "\n".join([*parts, *body, "</svg>"]) + "\n"


def _style() -> Iterator[str]:
    yield "<style>"
    yield "text{font:13px system-ui,'DejaVu Sans',sans-serif;fill:#1f2328}"
    yield ".small{font-size:11.5px;fill:#59636e}.title{font-size:15px;font-weight:600}"
    yield ".grid{stroke:#d1d9e0;fill:none}.axis{stroke:#9aa4af;fill:none}"
    yield from _hues(_LIGHT)
    yield ".line{fill:none!important;stroke-width:2.2!important}"
    yield "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9da7b3}"
    yield ".grid{stroke:#30363d}.axis{stroke:#6e7681}"
    yield from _hues(_DARK)
    yield "}</style>"


def _hues(hues: Mapping[str, str]) -> Iterator[str]:
    for name, colour in hues.items():
        yield f".{name}{{fill:{colour};stroke:{colour};stroke-width:1.5}}"
        yield f".{name}.hollow{{fill:none}}"


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> str:
    named = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _nice(value: float) -> float:
    """Returns the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
