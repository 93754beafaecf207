"""The counts of requests belong to an installation, and are read."""

from __future__ import annotations

from fsck_lab import FsckLab

from tarn.core.levels import ALL_FEATURES
from tarn.fsck.finding import Code
from tarn.kv.keys import InstallationKeys
from tarn_graveler.records.request_counts import RequestCountRecords


async def test_counts_are_known_and_a_damaged_one_is_reported(lab: FsckLab) -> None:
    keys = InstallationKeys("test")
    counts = RequestCountRecords(lab.kv, keys, lab.lake.clock, ALL_FEATURES)
    await counts.report("2026-11", "a" * 32, 5)
    lab.days = 3
    assert await lab.check() == [], lab.details
    await lab.set(keys.request_counts, b"2026-11", b"{}")
    await lab.set(keys.request_counts, b"november", b"{}")
    found = await lab.check()
    assert [code for code, _ in found] == [Code.RECORD_DAMAGED.label] * 2, lab.details
