"""Uncommitted changes of a compacted branch: the difference beneath the staged rows is read once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lake import Lake
from lake_merges import branch_with, head, merge, record, refused

from tarn.core.entry import unpack
from tarn.core.errors import Reason
from tarn.core.listing.diff import DiffPage
from tarn_graveler.branch.uncommitted import CompactedChanges

ROWS = 60


class Reads:
    """Counts the differences of listings that a replica computes."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.afters: list[str] = []
        page = lake.graveler.committed.differences.page

        async def counted(*args: Any, **options: Any) -> DiffPage:
            self.afters.append(options["after"])
            return await page(*args, **options)

        monkeypatch.setattr(lake.graveler.committed.differences, "page", counted)

    def taken(self) -> list[str]:
        found, self.afters = self.afters, []
        return found


async def compacted(lake: Lake) -> dict[str, int]:
    """Commits some objects, changes and deletes some of them, adds others, and compacts; returns the listing."""
    for number in range(ROWS):
        await lake.put(f"old/{number:03}", 1)
    await lake.commit()
    listing = {f"old/{number:03}": 1 for number in range(ROWS)}
    for number in range(0, ROWS, 2):
        await lake.put(f"new/{number:03}", 2)
        listing[f"new/{number:03}"] = 2
    await lake.delete("old/007")
    del listing["old/007"]
    await lake.put("old/009", 9)
    listing["old/009"] = 9
    await lake.graveler.compacting.compact(lake.main)
    assert (await record(lake)).compacted_metarange_id is not None
    return listing


async def all_changes(lake: Lake, limit: int, prefix: str = "") -> dict[str, int | None]:
    """Returns the uncommitted changes, read in pages: sizes, None for a deleted object."""
    found: dict[str, int | None] = {}
    after: str | None = ""
    while after is not None:
        page = await lake.graveler.diffing.uncommitted(
            lake.main, prefix=prefix, after=after, limit=limit
        )
        assert page.next_after is None or page.next_after > after
        assert len(page.paths) <= limit
        found |= {
            path: unpack(packed).size if packed else None
            for path, packed in zip(page.paths, page.rights, strict=True)
        }
        after = page.next_after
    return found


async def test_repeated_looks_for_uncommitted_changes_compare_the_listings_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await branch_with(lake, {"s": 1})
    await compacted(lake)
    reads = Reads(lake, monkeypatch)
    assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    assert reads.taken() == [""]
    for _ in range(3):
        assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    assert len(await all_changes(lake, 1000)) == ROWS // 2 + 2
    assert reads.taken() == []
    # Another compaction is another listing.
    await lake.put("newer", 1)
    await lake.graveler.compacting.compact(lake.main)
    assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    assert reads.taken() == [""]
    # And so is another commit beneath the same uncommitted changes.
    await lake.commit()
    await merge(lake, source)
    assert reads.taken() == []


async def test_pages_of_many_staged_rows_compare_each_part_of_the_listings_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more staged rows than changes beneath them, so each page of these serves many pages of rows."""
    await compacted(lake)
    for number in range(ROWS):
        await lake.put(f"between/{number:03}", 3)
    reads = Reads(lake, monkeypatch)
    changes = await all_changes(lake, 10)
    assert len(changes) == ROWS + ROWS // 2 + 2
    afters = reads.taken()
    assert len(afters) == len(set(afters)) <= (ROWS // 2 + 2) // 10 + 2


async def test_any_order_of_pages_and_prefixes_shows_the_same_changes(lake: Lake) -> None:
    listing = await compacted(lake)
    rng = random.Random(7)
    expected: dict[str, int | None] = {
        path: size for path, size in listing.items() if path >= "old/" or size == 2
    }
    expected = {path: size for path, size in expected.items() if size != 1} | {"old/007": None}
    for path, size in (("new/004", 5), ("old/009", 1), ("zz", 4), ("a", 6)):
        await lake.put(path, size)
        expected[path] = size
    del expected["old/009"]  # has the commit's content again
    await lake.delete("new/002")
    del expected["new/002"]
    for _ in range(30):
        prefix = rng.choice(["", "", "new/", "old/0", "ol", "none/"])
        wanted = {path: size for path, size in expected.items() if path.startswith(prefix)}
        assert await all_changes(lake, rng.choice([1, 2, 3, 7, 1000]), prefix) == wanted


async def test_remembered_pages_have_a_limit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    await compacted(lake)
    branch = await record(lake)
    assert branch.compacted_metarange_id is not None
    namespace = lake.repository.storage_namespace
    beneath = (await lake.graveler.commits.get(lake.repository, await head(lake))).metarange_id
    reads = Reads(lake, monkeypatch)
    changes = CompactedChanges(lake.graveler.committed, bytes_max=2 * 3000 + 100)

    async def read(prefix: str, limit: int = 10) -> int:
        page = await changes.page(
            namespace,
            beneath,
            branch.compacted_metarange_id or beneath,
            prefix=prefix,
            after="",
            limit=limit,
        )
        assert len(page.paths) <= limit
        return len(reads.taken())

    assert [await read("x"), await read("y"), await read("x"), await read("y")] == [1, 1, 0, 0]
    assert [await read("z"), await read("y"), await read("x")] == [1, 0, 1]
    # A smaller page serves no request for a larger one; a larger one serves all smaller ones.
    assert [await read("", 1), await read("", 3), await read("", 2)] == [1, 1, 0]
