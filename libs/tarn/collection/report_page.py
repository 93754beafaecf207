"""The report of a collection as one HTML file with plots. It loads nothing from anywhere. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tarn.collection.block_names import BlockKind
from tarn.collection.outcomes import Outcome
from tarn.collection.quarantine import Tally
from tarn.collection.run_summary import Band, RunSummary, candidates_of, total_of
from tarn.core.byte_sizes import shown_size

__all__ = ["MonthlyCost", "cost_of", "render"]

_GIB: Final = 1 << 30
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2.2rem}table{border-collapse:collapse}
td,th{padding:.2rem .8rem .2rem 0;text-align:left;font-weight:normal}td.n,th.n{text-align:right}
th{color:#57606a}p.note{color:#57606a}svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#1b1f24}
.bad{color:#b42318;font-weight:600}
"""
_ROW: Final = 22
_LEFT: Final = 150
_WIDTH: Final = 800
_BAR: Final = 430


@dataclass(frozen=True, slots=True)
class MonthlyCost:
    """The cost of blocks for a month, in the currency of the price.

    Attributes:
        all: every listed block.
        candidates: the unreferenced blocks: the saving of the sweep, if it deletes them all.
        deleted: those that the sweep deleted; 0 without a sweep.
    """

    all: float
    candidates: float
    deleted: float


def cost_of(summary: RunSummary, price: float) -> MonthlyCost:
    """Returns the cost of the blocks of a run.

    Args:
        summary: of the run.
        price: of a GiB for a month.
    """
    deleted = summary.report.total(Outcome.DELETED).size_bytes if summary.report else 0
    sizes = (summary.listed().size_bytes, summary.candidates().size_bytes, deleted)
    return MonthlyCost(*(size / _GIB * price for size in sizes))


def render(summary: RunSummary, price: float) -> str:
    """Returns the page.

    Args:
        summary: of the run.
        price: of a GiB for a month, in any currency.
    """
    manifest = summary.manifest
    title = f"Garbage collection of {html.escape(manifest.repository)}"
    parts = [
        f"<h1>{title}</h1>",
        f"<p>Mark {html.escape(manifest.run_id)}, {_time(manifest.marked_us)}. Blocks from before "
        f"{_time(manifest.cutoff_us)} were judged.</p>",
        _state(summary),
        "<h2>Cost</h2>",
        _costs(summary, price),
        "<h2>Blocks by kind</h2>",
        _kinds(summary),
        "<h2>Unreferenced blocks by age</h2>",
        _bars(summary.ages),
        "<h2>Unreferenced blocks by size</h2>",
        _bars(summary.sizes),
        f"<h2>Unreferenced blocks by day{' (the largest)' if len(summary.days) > 1 else ''}</h2>",
        _bars(summary.days),
        '<p class="note">The day is that on which a block became visible. Its path, branch and writer are not known: '
        "nothing refers to it any more.</p>",
        *_history(summary),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _state(summary: RunSummary) -> str:
    report = summary.report
    if report is None:
        return "<p>It is not swept yet: nothing of it was deleted, or a sweep is under way.</p>"
    rows = "".join(
        f'<tr><th>{outcome.value}</th><td class="n">{tally.count:,}</td>'
        f'<td class="n">{shown_size(tally.size_bytes)}</td></tr>'
        for outcome in Outcome
        for tally in (report.total(outcome),)
    )
    lost = ""
    if report.missing:
        lost = f'<p class="bad">{len(report.missing)} live blocks were missing after the sweep. Run tarn fsck.</p>'
    return (
        f"<p>Swept {_time(report.swept_us)}. {report.sampled:,} live blocks were looked at.</p>"
        f"{lost}<table>{rows}</table>"
    )


def _costs(summary: RunSummary, price: float) -> str:
    cost = cost_of(summary, price)
    rows = [
        ("all blocks", summary.listed(), cost.all),
        ("unreferenced", summary.candidates(), cost.candidates),
    ]
    if summary.report is not None:
        rows.append(("deleted: saved", summary.report.total(Outcome.DELETED), cost.deleted))
    cells = "".join(
        f'<tr><th>{name}</th><td class="n">{shown_size(tally.size_bytes)}</td>'
        f'<td class="n">{value:,.2f} a month</td></tr>'
        for name, tally, value in rows
    )
    return f'<table>{cells}</table><p class="note">At {price:g} for a GiB and month.</p>'


def _kinds(summary: RunSummary) -> str:
    rows = []
    for kind in BlockKind:
        listed, found = summary.manifest.listed[kind.value], summary.manifest.candidates(kind)
        rows.append(
            f'<tr><td>{kind.value}</td><td class="n">{listed.count:,}</td>'
            f'<td class="n">{shown_size(listed.size_bytes)}</td><td class="n">{found.count:,}</td>'
            f'<td class="n">{shown_size(found.size_bytes)}</td></tr>'
        )
    head = '<tr><th>kind</th><th class="n">all</th><th></th><th class="n">unreferenced</th><th></th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _bars(bands: Sequence[Band]) -> str:
    if not any(band.tally.count for band in bands):
        return "<p>None.</p>"
    return _plot(
        [
            (band.name, band.tally, f"{shown_size(band.tally.size_bytes)}, {band.tally.count:,}")
            for band in bands
        ]
    )


def _history(summary: RunSummary) -> list[str]:
    """Returns the plot of unreferenced bytes of this mark and those before it; nothing for the first one."""
    if not summary.before:
        return []
    rows = []
    for each in (*summary.before, summary.manifest):
        found, listed = candidates_of(each), total_of(each.listed)
        told = f"{shown_size(found.size_bytes)} of {shown_size(listed.size_bytes)}"
        rows.append((_time(each.marked_us), found, told))
    return ["<h2>Unreferenced bytes at each mark</h2>", _plot(rows)]


def _plot(rows: Sequence[tuple[str, Tally, str]]) -> str:
    """Returns horizontal bars, as long as the bytes."""
    most = max((tally.size_bytes for _, tally, _ in rows), default=0) or 1
    lines = []
    for number, (name, tally, told) in enumerate(rows):
        top = number * _ROW
        width = max(_BAR * tally.size_bytes / most, 1.0 if tally.count else 0.0)
        lines.append(
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="{_LEFT}" y="{top + 4}" width="{width:.1f}" height="14" fill="#2f6f9f"/>'
            f'<text x="{_LEFT + width + 6:.1f}" y="{top + 15}">{html.escape(told)}</text>'
        )
    height = len(rows) * _ROW + 4
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(lines)}</svg>'


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
