"""Symlink manifests are known files, at their own places only."""

from __future__ import annotations

from fsck_lab import FsckLab

from tarn.block.port import BlockKey
from tarn.fsck.finding import Code
from tarn_api.symlinks import MANIFEST, RUNS_PREFIX, SymlinkPlace


async def test_manifests_and_runs_are_not_foreign(lab: FsckLab) -> None:
    namespace = lab.lake.repository.storage_namespace
    place = SymlinkPlace("lake", "main", namespace, "")
    known = [
        place.manifest(""),
        place.manifest("t/day=1/new\nline/"),
        f"{place.runs}0123456789abcdef0123456789abcdef",
    ]
    foreign = [f"_tarn/symlinks/lake/{MANIFEST}", place.manifest("") + ".bak", f"{RUNS_PREFIX}x"]
    for path in (*known, *foreign):
        await lab.blocks.put(BlockKey(namespace, path), b"")
    lab.days = 3
    found = await lab.check()
    assert sorted(found) == sorted((Code.BLOCK_FOREIGN.label, path) for path in foreign)
