"""The report of a collection, from the files that a real mark and sweep leave."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from collected_lake import MARK, CollectedLake

from tarn.block.port import BlockKey
from tarn.collection.outcomes import Outcome
from tarn.collection.quarantine import run_folder
from tarn.collection.report_page import cost_of, render
from tarn.collection.run_summary import RunSummary, summarize
from tarn.core.errors import Reason, TarnError

GIB = 1 << 30


async def marked_lake(folder: Path) -> CollectedLake:
    """Garbage of 3 and of 40 days, and one live block."""
    lake = CollectedLake(folder)
    await lake.object(b"x" * 5000)
    lake.clock.advance(37 * 86_400)
    await lake.object(b"y" * 7)
    await lake.object(b"y" * 7)
    lake.addresses.append(await lake.object(b"live"))
    lake.clock.advance(3 * 86_400)
    await lake.mark()
    return lake


async def summary_of(lake: CollectedLake, run_id: str = "") -> RunSummary:
    return await summarize(lake.blocks, lake.namespace, "lake", run_id)


async def test_candidates_are_counted_by_age_day_and_size(tmp_path: Path) -> None:
    summary = await summary_of(await marked_lake(tmp_path))
    assert (summary.listed().count, summary.candidates().count) == (4, 3)
    ages = {band.name: band.tally.size_bytes for band in summary.ages if band.tally.count}
    assert ages == {"2 to 7 days": 14, "30 to 90 days": 5000}
    sizes = {band.name: band.tally.count for band in summary.sizes if band.tally.count}
    assert sizes == {"less than 1 KiB": 2, "1 to 128 KiB": 1}
    assert [band.tally.count for band in summary.days] == [1, 2], "in order of time"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", summary.days[0].name)
    assert (summary.report, summary.before) == (None, ())


async def test_a_band_ends_before_its_limit(tmp_path: Path) -> None:
    lake = CollectedLake(tmp_path)
    await lake.object(b"x" * 1023)
    await lake.object(b"x" * 1024)
    lake.clock.advance(3 * 86_400)
    await lake.mark()
    sizes = [band.tally.count for band in (await summary_of(lake)).sizes]
    assert sizes[:3] == [1, 1, 0]


async def test_a_swept_run_tells_its_outcomes_and_savings(tmp_path: Path) -> None:
    lake = await marked_lake(tmp_path)
    manifest = (await summary_of(lake)).manifest
    await lake.sweep(manifest)
    summary = await summary_of(lake, MARK)
    assert summary.report is not None
    assert summary.report.total(Outcome.DELETED).size_bytes == 5014
    cost = cost_of(summary, float(GIB))
    assert (cost.all, cost.candidates, cost.deleted) == (5018, 5014, 5014)


async def test_the_page_is_complete_and_loads_nothing(tmp_path: Path) -> None:
    lake = await marked_lake(tmp_path)
    await lake.sweep((await summary_of(lake)).manifest)
    page = render(await summary_of(lake), 0.5)
    assert not re.search(r"https?://|src=|href=|@import|url\(|<script", page)
    plots = [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert len(plots) == 3
    ages = plots[0]
    widths = [float(bar.get("width", "")) for bar in ages.findall("rect")]
    assert widths == [0, 1.2, 0, 430, 0, 0]
    assert "4.9 KiB, 1" in "".join(ages.itertext())
    assert "At 0.5 for a GiB and month" in page
    ET.fromstring(page.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', ""))


async def test_names_are_escaped(tmp_path: Path) -> None:
    lake = await marked_lake(tmp_path)
    summary = await summary_of(lake)
    object.__setattr__(summary.manifest, "repository", "<b>&")
    page = render(summary, 0)
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page


async def test_earlier_marks_are_plotted(tmp_path: Path) -> None:
    lake = await marked_lake(tmp_path)
    later = "b" * 32
    body = await lake.blocks.read(
        BlockKey(lake.namespace, run_folder(MARK) + "manifest.json"), 0, 1 << 20
    )
    again = body.replace(MARK.encode(), later.encode(), 1)
    await lake.put(run_folder(later) + "manifest.json", again)
    summary = await summary_of(lake)
    assert (summary.manifest.run_id, [each.run_id for each in summary.before]) == (later, [MARK])
    assert "Unreferenced bytes at each mark" in render(summary, 0)
    assert (await summary_of(lake, MARK)).before == ()


async def test_without_a_mark_there_is_no_report(tmp_path: Path) -> None:
    lake = CollectedLake(tmp_path)
    for run_id in ("", MARK):
        with pytest.raises(TarnError) as caught:
            await summary_of(lake, run_id)
        assert caught.value.reason is Reason.COLLECTION_NO_MARK
    with pytest.raises(TarnError, match="must be 32 hex digits"):
        await summary_of(lake, "../x")


async def test_a_missing_file_of_the_quarantine_is_told(tmp_path: Path) -> None:
    lake = await marked_lake(tmp_path)
    (part,) = (await summary_of(lake)).manifest.parts
    await lake.blocks.delete_many(lake.namespace, [part.path])
    with pytest.raises(TarnError, match="it is missing"):
        await summary_of(lake)
